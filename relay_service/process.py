"""The relay as a process: settings to parts, signals to drain, logs and metrics to the outside."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from uuid import uuid4

import grpc
import structlog

from relay_service.config import RelaySettings
from relay_service.core.identity import PublicIdentity
from relay_service.identity_file import IdentityFileError, load_identity, load_public_key
from relay_service.pairing import PairingSettings
from relay_service.planes.policy_client import PolicyClient
from relay_service.projection import FileProjection, ProjectionSource
from relay_service.projection_exchange import ProjectionExchange
from relay_service.projection_keeper import ProjectionKeeper
from relay_service.server import RelayServer, ServerOptions
from relay_service.store_forms import MEMORY
from relay_service.stores import open_store
from service_common.background import Background
from service_common.clocks import Clock, SystemClock
from service_common.errors import SettingsError
from service_common.event_loop import run as run_event_loop
from service_common.event_loop import tune_garbage_collector
from service_common.listeners import is_loopback
from service_common.logs import LOG_KEYS, configure_logs
from service_common.metrics import Metrics, MetricsEndpoint
from service_common.process_limits import raise_file_limit
from service_common.sessions.limits import SessionTimes

_log = structlog.get_logger(__name__)

# Ids and numbers; never an envelope, a stub's purpose or anything a caller can write at length.
RELAY_LOG_KEYS = LOG_KEYS | {
    "actor",
    "expiries",
    "instance",
    "leases",
    "notice",
    "owner",
    "path",
    "plane",
    "problem",
    "problems",
    "projection",
    "revision",
    "runner_id",
    "site_id",
    "store",
    "window_ms",
}
# The name that the only operator signs with.
OPERATOR = "operator"
# Descriptors beside those of connections: listeners, the log, the projection file, epoll.
_OTHER_FILES = 1_000
# Three steps of the store for each stream in that time, whatever happens.
_ROUND_SECONDS = 120.0
# Of one stream, where they wait for a store or a policy.
_CONCURRENT_CALLS = 16


def run(settings: RelaySettings) -> int:
    """Serves with these settings until SIGTERM or Ctrl-C; returns the exit status.

    Raises:
        SettingsError: an address cannot be served.
        ProjectionError: there is no usable projection to begin with.
    """
    pretty = None if settings.log_format == "auto" else settings.log_format == "pretty"
    configure_logs(settings.log_level.upper(), keys=RELAY_LOG_KEYS, pretty=pretty)
    run_event_loop(_serve(settings))
    return 0


async def _serve(settings: RelaySettings) -> None:
    clock = SystemClock()
    metrics = Metrics()
    warning = raise_file_limit(settings.wanted_daemons + _OTHER_FILES)
    if warning is not None:
        _log.warning("few_files", problem=warning)
    source, file_projection = _projection(settings, clock, metrics)
    gap = Gap()
    async with open_store(settings.store, clock, metrics, gap.note) as store:
        background = Background()
        exchange = ProjectionExchange(store, source, background)
        keeper = ProjectionKeeper(source, exchange, forgetful=_is_forgetful(settings))
        policy = open_policy(settings)
        options = replace(_options(settings), policy=policy)
        server = RelayServer(store, source, options, clock=clock, metrics=metrics, keeper=keeper)
        gap.tell = [server.relay.dispatch.note_gap, exchange.missed, server.pairing.recheck]
        try:
            await keeper.begin()
            if file_projection is not None:
                background.run(file_projection.watch())
            if settings.store != MEMORY:
                server.relay.go_round(_ROUND_SECONDS, exchange.missed)
            await _serve_until_drained(settings, server, metrics)
        finally:
            exchange.end()
            await background.cancel()
            if policy is not None:
                await policy.close()


class Gap:
    """News of the store that may have been missed, before and after there is somebody to tell."""

    def __init__(self) -> None:
        self.tell: Sequence[Callable[[], None]] = ()

    def note(self) -> None:
        """Tells whoever can look for what was missed; at the start everything is looked for anyway."""
        for tell in self.tell:
            tell()


async def _serve_until_drained(settings: RelaySettings, server: RelayServer, metrics: Metrics) -> None:
    endpoint = metrics.expose_at(settings.metrics_listen)
    await server.start()
    try:
        server.drain.install_signal_handlers()
        tune_garbage_collector()
        _announce(settings, server, endpoint)
        await server.run_until_drained()
    finally:
        await server.stop()
        if endpoint is not None:
            endpoint.close()


def _projection(
    settings: RelaySettings, clock: Clock, metrics: Metrics
) -> tuple[ProjectionSource, FileProjection | None]:
    if settings.projection is None:
        return ProjectionSource(metrics=metrics), None
    source = FileProjection(settings.projection, clock, metrics=metrics)
    return source, source


def open_policy(settings: RelaySettings) -> PolicyClient | None:
    """The operator's policy, not connected yet: plaintext where nobody else listens, TLS elsewhere.

    Raises:
        SettingsError: the file of the roots cannot be read.
    """
    if not settings.policy:
        return None
    if settings.policy_ca is None and (settings.behind_mesh or is_loopback(settings.policy)):
        return PolicyClient(settings.policy)
    try:
        roots = None if settings.policy_ca is None else settings.policy_ca.read_bytes()
    except OSError as error:
        raise SettingsError(f"--policy-ca: {settings.policy_ca}: {error.strerror}") from None
    return PolicyClient(settings.policy, grpc.ssl_channel_credentials(roots))


def _is_forgetful(settings: RelaySettings) -> bool:
    """Whether the operator's decisions live in this process alone."""
    return settings.projection is None and settings.store == MEMORY


def _options(settings: RelaySettings) -> ServerOptions:
    # Of one reading of the certificate.
    main, *others = settings.listeners([settings.listen, settings.admin_listen])
    return ServerOptions(
        listeners=[main],
        times=_times(settings),
        instance=settings.server_instance or f"relay-{uuid4().hex[:8]}",
        operators=_operators(settings),
        daemon_floor=settings.daemon_floor,
        offered_version=settings.offered_version,
        sessions_per_site=settings.max_sessions_per_site,
        grace_ms=round(settings.drain_grace_seconds * 1000),
        admin_listener=others[0] if others else None,
        pairing=_pairing(settings),
    )


def _pairing(settings: RelaySettings) -> PairingSettings:
    try:
        key = None if settings.control_plane_key is None else load_public_key(settings.control_plane_key)
    except IdentityFileError as error:
        raise SettingsError(f"--control-plane-key: {error}") from None
    return PairingSettings(
        offered=settings.pairing,
        verification_url=settings.verification_url,
        control_plane_key=key,
        starts_per_minute=settings.pairing_starts_per_minute,
    )


def _operators(settings: RelaySettings) -> dict[str, PublicIdentity]:
    if settings.operator_identity is None:
        return {}
    path = settings.operator_identity
    files = {each.stem: each for each in sorted(path.glob("*.json"))} if path.is_dir() else {OPERATOR: path}
    if not files:
        raise SettingsError(f"{path}: has no NAME.json with the public identity of an operator")
    try:
        return {name: load_identity(file) for name, file in files.items()}
    except IdentityFileError as error:
        raise SettingsError(str(error)) from None


def _times(settings: RelaySettings) -> SessionTimes:
    # In memory no call waits for another, unless it waits for the policy.
    calls = 1 if settings.store == MEMORY and not settings.policy else _CONCURRENT_CALLS
    return replace(SessionTimes.of_settings(settings), concurrent_calls=calls)


def _announce(settings: RelaySettings, server: RelayServer, endpoint: MetricsEndpoint | None) -> None:
    if settings.dev:
        _log.warning("development mode: insecure and for this machine only")
    # Without what may follow the address, a password for one.
    store = settings.store.partition("://")[0] if "://" in settings.store else settings.store
    _log.info("relay is serving", address=server.address, port=server.ports[0], store=store)
    if endpoint is not None:
        _log.info("metrics are served", port=endpoint.port)
