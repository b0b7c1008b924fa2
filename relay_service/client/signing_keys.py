"""Which of a caller's keys signs: while its keys change hands, the one that the relay takes."""

from service_common.signing_keys import BAD_SIGNATURE, CurrentSigner, SigningKeys

__all__ = ["BAD_SIGNATURE", "CurrentSigner", "SigningKeys"]
