"""Where a relay is, and the channels to it."""

from service_common.connection import Connection, is_address

__all__ = ["Connection", "is_address"]
