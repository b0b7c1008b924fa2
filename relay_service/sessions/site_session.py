"""The stream of one site process: notices as they happen, and small calls."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc.aio

from relay_service.planes.site_calls import SiteCalls
from relay_service.planes.validation import Checks
from relay_service.sessions.framing import SiteFraming, SiteItem, SiteServerItem
from relay_service.sessions.published_jobs import PublishedJobs
from relay_service.sessions.site_replies import answer, jobs_of
from sealwork.relay.v1 import site_plane_pb2
from sealwork.session.v1 import session_pb2
from service_common.sessions.concurrent_calls import ConcurrentCalls
from service_common.sessions.credit import CreditLimit
from service_common.sessions.endings import EndReason, protocol_violation
from service_common.sessions.session import ServerSession, SessionSetting


@dataclass(frozen=True, slots=True)
class SiteServices:
    """What the stream of a site works with.

    Attributes:
        wants_notices: told the site whenever one of its sessions may have become able to take notices.
    """

    calls: SiteCalls
    wants_notices: Callable[[str], None]


class SiteSession(ServerSession[SiteItem, SiteServerItem]):
    """What a connected site has: credit for notices, and calls."""

    def __init__(
        self,
        context: grpc.aio.ServicerContext[Any, Any],
        site_id: str,
        hello: site_plane_pb2.SiteHello,
        capabilities: frozenset[session_pb2.Capability.ValueType],
        key: bytes,
        session_id: str,
        services: SiteServices,
        setting: SessionSetting,
    ) -> None:
        super().__init__(context, SiteFraming(), session_id, setting)
        self.site_id = site_id
        self.key = key
        self.inline_result = session_pb2.CAPABILITY_INLINE_RESULT in capabilities
        self.credit = CreditLimit(hello.credit.limit)
        self.published = PublishedJobs()
        self._calls = services.calls
        self._under_way = ConcurrentCalls(self.times.concurrent_calls)
        self._wants_notices = services.wants_notices

    @property
    def free(self) -> int:
        """How many notices it would take now."""
        return 0 if self.ended or self.draining else self.credit.free

    def notices_wanted(self) -> None:
        """The lane has room again: what did not fit is sent now."""
        self._wants_notices(self.site_id)

    def arrive(self, welcome: session_pb2.Welcome) -> None:
        """Welcomes the site and starts to send what waits in its inbox."""
        self.send_control(SiteServerItem(welcome=welcome))
        self._wants_notices(self.site_id)

    def arm_of(self, item: SiteItem) -> str | None:
        """The arm that is set."""
        return item.WhichOneof("item")

    async def receive(self, item: SiteItem) -> None:
        """Handles one item; what follows a call does not wait for its answer."""
        arm = item.WhichOneof("item")
        if arm == "call":
            # Before the store is asked: a device may have claimed by the time that it answers.
            self.published.note(item.call)
            await self._under_way.start(jobs_of(item.call), partial(self._answer, item.call))
            return
        await self._under_way.begun()
        match arm:
            case "credit":
                self.credit.raise_to(item.credit.limit)
                self._wants_notices(self.site_id)
            case "heartbeat":
                if item.heartbeat.ping_id:
                    echo = session_pb2.Heartbeat(pong_id=item.heartbeat.ping_id)
                    self.send_control(SiteServerItem(heartbeat=echo))
            case "goodbye":
                await self.settle()
                self.end(EndReason.GOODBYE)
            case _:
                self.end(EndReason.REFUSED, protocol_violation("a second hello on one stream"))

    async def settle(self) -> None:
        """Returns when every call has been answered."""
        await self._under_way.settled()

    async def _answer(self, call: site_plane_pb2.SiteCall) -> None:
        reply = await answer(self._calls, self.site_id, call, self.times)
        self.send_control(SiteServerItem(reply=reply))

    def push_notice(self, notice: site_plane_pb2.SiteNotice) -> bool:
        """Sends a row of the inbox; False when the lane is full and it must be sent again."""
        if self.ended or not self.send_notice(SiteServerItem(notice=notice)):
            return False
        self.credit.sent += 1
        return True


def check_hello(hello: site_plane_pb2.SiteHello) -> None:
    """Raises FIELD_INVALID with every fault of a hello."""
    checks = Checks()
    checks.identifier("process_id", hello.process_id)
    checks.label("client_version", hello.client_version)
    checks.label("client_name", hello.client_name)
    checks.raise_faults()
