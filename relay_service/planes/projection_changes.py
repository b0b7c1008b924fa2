"""From the message of one change to what it does to a projection, its fields checked by the file's rules."""

from collections.abc import Callable, Sequence

from relay_service import projection_edits as edits
from relay_service.core.identity import SIGNATURE_BYTES, encode_base64url
from relay_service.core.limits import MAXIMUM_INSTANT_MS
from relay_service.core.projection import Projection
from relay_service.planes.convert import milliseconds_of
from relay_service.planes.projection_messages import identity_document, refuse
from relay_service.projection_edits import Edit
from relay_service.projection_fields import FieldReader, Findings
from relay_service.projection_json import JsonObject
from sealwork.relay.v1 import control_plane_pb2
from service_common.errors import FieldViolation, invalid_argument

Change = Callable[[Projection], Edit]

_MEMBERS_A_CALL = 500
_KEYS = ("siteId", "runnerId", "owner", "rosterId", "members", "identity", "signature")


class _Fields:
    """The fields of one change."""

    def __init__(self, **values: object) -> None:
        self.findings = Findings()
        self._reader = FieldReader(JsonObject(values), (), _KEYS, self.findings)
        self.caller = self._reader.caller
        self.name = self._reader.name
        self.names = self._reader.names
        self.identity = self._reader.identity
        self.key_bytes = self._reader.key_bytes

    def note(self, key: str, reason: str) -> None:
        self.findings.note((key,), reason)


def change_of(request: control_plane_pb2.ChangeProjectionRequest) -> tuple[str, Change]:
    """The name of the change and what it does.

    Raises:
        ServiceError: FIELD_INVALID.
    """
    arm = request.WhichOneof("change")
    if arm is None:
        raise invalid_argument([FieldViolation("change", "must be one of the changes")])
    fields, change = _READERS[arm](getattr(request, arm))
    refuse(fields.findings, arm)
    return arm, change


def _add_site(message: control_plane_pb2.AddSite) -> tuple[_Fields, Change]:
    fields = _Fields(siteId=message.site_id, identity=identity_document(message.identity))
    site_id, identity = fields.caller("siteId"), fields.identity("identity")
    return fields, lambda current: edits.add_site(current, site_id, identity)


def _remove_site(message: control_plane_pb2.RemoveSite) -> tuple[_Fields, Change]:
    fields = _Fields(siteId=message.site_id)
    site_id = fields.caller("siteId")
    return fields, lambda current: edits.remove_site(current, site_id)


def _rotate_site(message: control_plane_pb2.RotateSite) -> tuple[_Fields, Change]:
    fields = _Fields(
        siteId=message.site_id,
        identity=identity_document(message.identity),
        signature=encode_base64url(message.signature),
    )
    site_id, identity = fields.caller("siteId"), fields.identity("identity")
    signature = fields.key_bytes("signature", SIGNATURE_BYTES)
    until_ms = None
    if message.HasField("retiring_until_time"):
        until_ms = milliseconds_of(message.retiring_until_time)
        if not 0 < until_ms <= MAXIMUM_INSTANT_MS:
            fields.note("retiring_until_time", "must be an instant after 1970")
    return fields, lambda current: edits.rotate_site(current, site_id, identity, signature, until_ms)


def _add_device(message: control_plane_pb2.AddDevice) -> tuple[_Fields, Change]:
    fields = _Fields(
        runnerId=message.runner_id, owner=message.owner, identity=identity_document(message.identity)
    )
    runner_id, owner = fields.caller("runnerId"), fields.name("owner")
    identity = fields.identity("identity")
    return fields, lambda current: edits.add_device(current, runner_id, owner, identity)


def _revoke_device(message: control_plane_pb2.RevokeDevice) -> tuple[_Fields, Change]:
    fields = _Fields(runnerId=message.runner_id)
    runner_id = fields.caller("runnerId")
    return fields, lambda current: edits.revoke_device(current, runner_id)


def _consent(
    edit: Callable[[Projection, str, str], Edit],
) -> Callable[[control_plane_pb2.GrantConsent], tuple[_Fields, Change]]:
    def read(message: control_plane_pb2.GrantConsent) -> tuple[_Fields, Change]:
        fields = _Fields(owner=message.owner, siteId=message.site_id)
        owner, site_id = fields.name("owner"), fields.caller("siteId")
        return fields, lambda current: edit(current, owner, site_id)

    return read


def _pause(current: Projection, owner: str, site_id: str) -> Edit:
    return edits.pause_consent(current, owner, site_id, paused=True)


def _resume(current: Projection, owner: str, site_id: str) -> Edit:
    return edits.pause_consent(current, owner, site_id, paused=False)


def _members(
    edit: Callable[[Projection, str, str, Sequence[str]], Edit], *, least: int
) -> Callable[[control_plane_pb2.AddRosterMembers], tuple[_Fields, Change]]:
    def read(message: control_plane_pb2.AddRosterMembers) -> tuple[_Fields, Change]:
        fields = _Fields(rosterId=message.roster_id, owner=message.owner, members=list(message.members))
        roster_id, owner = fields.name("rosterId"), fields.name("owner")
        if not least <= len(message.members) <= _MEMBERS_A_CALL:
            fields.note("members", f"must be {least} to {_MEMBERS_A_CALL}")
        members = fields.names("members")
        return fields, lambda current: edit(current, roster_id, owner, members)

    return read


_READERS: dict[str, Callable[..., tuple[_Fields, Change]]] = {
    "add_site": _add_site,
    "remove_site": _remove_site,
    "rotate_site": _rotate_site,
    "add_device": _add_device,
    "revoke_device": _revoke_device,
    "grant_consent": _consent(edits.grant_consent),
    "pause_consent": _consent(_pause),
    "resume_consent": _consent(_resume),
    "revoke_consent": _consent(edits.revoke_consent),
    "add_roster_members": _members(edits.add_roster_members, least=1),
    "remove_roster_members": _members(edits.remove_roster_members, least=0),
}
