"""The durable service as a process: settings to parts, signals to drain, logs and metrics to the outside."""

from typing import Final
from uuid import uuid4

import structlog

from durable_service.admission_file import FileAdmission
from durable_service.config import DurableSettings
from durable_service.principals_source import FilePrincipals
from durable_service.purge_policy import parse_purge_policy
from durable_service.server import DurableServer, ServerOptions
from durable_service.store.base import StoreLimits
from durable_service.store_forms import kind_of
from durable_service.stores import open_stores
from service_common.background import Background
from service_common.clocks import SystemClock
from service_common.errors import SettingsError
from service_common.event_loop import run as run_event_loop
from service_common.event_loop import tune_garbage_collector
from service_common.logs import LOG_KEYS, configure_logs
from service_common.metrics import Metrics, MetricsEndpoint
from service_common.process_limits import raise_file_limit
from service_common.sessions.limits import SessionTimes

_log = structlog.get_logger(__name__)

# Ids and numbers; never an input, an argument or anything that a caller can write at length.
DURABLE_LOG_KEYS: Final = LOG_KEYS | {
    "action",
    "approval",
    "decision",
    "durable",
    "finding",
    "path",
    "principals",
    "problem",
    "removed",
    "state",
    "store",
    "task",
    "tenant",
}
# Descriptors beside those of connections: listeners, the log, the store's files, epoll.
_OTHER_FILES: Final = 1_000


def run(settings: DurableSettings) -> int:
    """Serves with these settings until SIGTERM or Ctrl-C; returns the exit status.

    Raises:
        SettingsError: an address cannot be served, or a store not opened.
        PrincipalsError: there are no usable principals to begin with.
        AdmissionError: nor usable rules of admission.
    """
    pretty = None if settings.log_format == "auto" else settings.log_format == "pretty"
    configure_logs(settings.log_level.upper(), keys=DURABLE_LOG_KEYS, pretty=pretty)
    run_event_loop(_serve(settings))
    return 0


async def _serve(settings: DurableSettings) -> None:
    clock = SystemClock()
    metrics = Metrics()
    warning = raise_file_limit(settings.wanted_streams + _OTHER_FILES)
    if warning is not None:
        _log.warning("few_files", problem=warning)
    if settings.principals is None:
        raise SettingsError("no principals: give --principals FILE")
    source = FilePrincipals(settings.principals, clock, metrics=metrics)
    admission = None
    if settings.admission is not None:
        admission = FileAdmission(settings.admission, clock, metrics=metrics)
    async with open_stores(settings.store, settings.blobs, _limits(settings)) as stores:
        background = Background()
        server = DurableServer(
            stores, source, _options(settings), clock=clock, metrics=metrics, admission=admission
        )
        background.run(source.watch())
        if admission is not None:
            background.run(admission.watch())
        try:
            await _serve_until_drained(settings, server, metrics)
        finally:
            await background.cancel()


async def _serve_until_drained(settings: DurableSettings, server: DurableServer, metrics: Metrics) -> None:
    endpoint = metrics.expose_at(settings.metrics_listen)
    try:
        await server.start()
        server.drain.install_signal_handlers()
        tune_garbage_collector()
        _announce(settings, server, endpoint)
        await server.run_until_drained()
    finally:
        await server.stop()
        if endpoint is not None:
            endpoint.close()


def _limits(settings: DurableSettings) -> StoreLimits:
    age = settings.event_age_seconds
    return StoreLimits(
        events_per_task=settings.events_per_task,
        event_bytes_per_task=settings.event_bytes_per_task,
        event_age_ms=None if age is None else round(age * 1000),
    )


def _options(settings: DurableSettings) -> ServerOptions:
    # Of one reading of the certificate.
    main, *others = settings.listeners([settings.listen, settings.admin_listen])
    return ServerOptions(
        listeners=[main],
        times=SessionTimes.of_settings(settings),
        instance=settings.server_instance or f"durable-{uuid4().hex[:8]}",
        store_kind=kind_of(settings.store),
        artifact_bytes=settings.artifact_bytes,
        retention_ms=round(settings.retention_seconds * 1000),
        purge_after_ms=parse_purge_policy(settings.purge),
        grace_ms=round(settings.drain_grace_seconds * 1000),
        admin_listener=others[0] if others else None,
        measured=bool(settings.metrics_listen),
    )


def _announce(settings: DurableSettings, server: DurableServer, endpoint: MetricsEndpoint | None) -> None:
    if settings.dev:
        _log.warning("development mode: insecure and for this machine only")
    kind = kind_of(settings.store)
    if kind == "memory":
        _log.warning("tasks are kept in memory: a restart loses all of them", durable=False)
    _log.info("durable service is serving", address=server.address, port=server.ports[0], store=kind)
    if endpoint is not None:
        _log.info("metrics are served", port=endpoint.port)
