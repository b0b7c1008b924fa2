"""Our relay with many devices connected and nothing to do, for latencies of single jobs."""

import asyncio
from random import Random
from time import perf_counter

from bench.our_relay.connected_device import ConnectedDevice, close_all, connect_all
from bench.our_relay.legs import Legs
from bench.our_relay.parties import KIND, ROW
from bench.our_relay.server import OurServer, projection_of
from bench.peer_relay.party import new_party
from bench.process_stats import ServerMeter
from bench.variant import VariantUnavailableError
from relay_service.client.daemon import Daemon
from relay_service.client.daemon_jobs import JobContext
from relay_service.client.payloads import OkOutcome
from relay_service.client.site import Site

WORKER, WATCHER = "worker", "watcher"
_SITE = "site-1"
_OPEN_SECONDS = 20.0


class Watch:
    """When the handler of a job started and when it was cancelled, by `perf_counter`."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.started: asyncio.Future[float] = loop.create_future()
        self.cancelled: asyncio.Future[float] = loop.create_future()


class ConnectedRelay:
    """A relay with its default settings, shared by the variants that measure on it.

    Attributes:
        watcher: a device that is told of cancels on its stream, and whose owner is `WATCHER`.
        watch: what the next job of the owner `WORKER` writes down.
        answers: whether that owner's handler answers at once or runs until it is cancelled.
    """

    def __init__(self, connected: int, seed: int = 1) -> None:
        """Prepares.

        Args:
            connected: devices that have a stream, one that gets jobs included.
        """
        random = Random(seed)
        self.connected = connected
        self.watch: Watch | None = None
        self.answers = True
        self._users = 0
        self._server = OurServer("--wanted-daemons", str(connected))
        self._site_party = new_party(_SITE, random)
        self._worker_party = new_party("runner-worker", random)
        self.watcher = ConnectedDevice(WATCHER, Legs(self._site_party, new_party("runner-watcher", random)))
        self._idle = [
            ConnectedDevice(f"owner-{number}", Legs(self._site_party, new_party(f"runner-{number}", random)))
            for number in range(connected - 1)
        ]
        self._site: Site | None = None
        self._daemon: Daemon | None = None
        self._running: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Starts it for its first user.

        Raises:
            VariantUnavailableError: it did not start; the message says why.
        """
        self._users += 1
        if self._users > 1:
            if self._site is None:
                raise VariantUnavailableError("the relay that it shares did not start")
            return
        devices = [self.watcher, *self._idle]
        owned = [(device.owner, _SITE, device.legs.device) for device in devices]
        owned.append((WORKER, _SITE, self._worker_party))
        await self._server.start(projection_of([self._site_party], owned))
        await connect_all(self._idle, self._server.address)
        site = Site(self._server.address, site_id=_SITE, keys=self._site_party.keys)
        self._site = await site.__aenter__()

    async def open_watcher(self) -> None:
        """Connects the device of the owner `WATCHER`."""
        await self.watcher.connect(self._server.address)

    async def open_worker(self) -> None:
        """Connects the device of the owner `WORKER`, unless that has been done."""
        if self._daemon is not None:
            return
        self._daemon = Daemon(
            self._server.address,
            runner_id=self._worker_party.caller_id,
            keys=self._worker_party.keys,
            pins=[self._site_party.keys.public],
            matrix=[ROW],
            handlers={KIND: self._handle},
            owner=WORKER,
        )
        self._running = asyncio.create_task(self._daemon.run())
        async with asyncio.timeout(_OPEN_SECONDS):
            await self._daemon.opened()

    async def close(self) -> None:
        """Stops it with its last user."""
        self._users -= 1
        if self._users:
            return
        if self._site is not None:
            await self._site.close()
        if self._daemon is not None and self._running is not None:
            await self._daemon.stop(0)
            await asyncio.wait([self._running])
        await close_all([self.watcher, *self._idle])
        await self._server.stop()

    @property
    def site(self) -> Site:
        """The site, by the client library."""
        assert self._site is not None
        return self._site

    def meter(self) -> ServerMeter:
        """Starts counting what the relay takes."""
        return self._server.meter()

    async def _handle(self, context: JobContext) -> OkOutcome:
        watch = self.watch
        if watch is not None and not watch.started.done():
            watch.started.set_result(perf_counter())
        try:
            if not self.answers:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            if watch is not None and not watch.cancelled.done():
                watch.cancelled.set_result(perf_counter())
            raise
        return OkOutcome(context.job_id)
