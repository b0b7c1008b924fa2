"""An option for every setting of the relay."""

from relay_service.config import FORM
from service_common import settings_options as common

_METAVARS = {
    "listen": "ADDRESS",
    "store": "URL",
    "projection": "FILE",
    "policy": "ADDRESS",
    "policy_ca": "FILE",
    "metrics_listen": "HOST:PORT",
    "admin_listen": "ADDRESS",
    "server_instance": "NAME",
    "daemon_floor": "VERSION",
    "offered_version": "VERSION",
    "max_sessions_per_site": "NUMBER",
    "wanted_daemons": "NUMBER",
    "verification_url": "URL",
    "control_plane_key": "FILE",
    "pairing_starts_per_minute": "NUMBER",
}

settings_options = common.settings_options(FORM, _METAVARS)
