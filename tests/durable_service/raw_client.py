"""Clients of the durable service that speak in raw messages: what a test says is what goes over the wire."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import grpc
import grpc.aio
from google.protobuf import message_factory
from google.rpc import error_details_pb2, status_pb2

from sealwork.durable.v1 import (
    action_service_pb2,
    admin_service_pb2,
    approval_service_pb2,
    record_service_pb2,
    task_service_pb2,
    worker_service_pb2,
)
from sealwork.session.v1 import session_pb2
from service_common.signing import Signer, request_metadata, sign_session

PACKAGE = "sealwork.durable.v1"
FILES = {
    "TaskService": task_service_pb2,
    "WorkerService": worker_service_pb2,
    "ActionService": action_service_pb2,
    "ApprovalService": approval_service_pb2,
    "RecordService": record_service_pb2,
    "DurableAdminService": admin_service_pb2,
}
# Every method by its name, which no two services share.
METHODS: dict[str, Any] = {
    method.name: method
    for name, file in FILES.items()
    for method in file.DESCRIPTOR.services_by_name[name].methods
}


@dataclass(frozen=True)
class Refusal:
    """A status as its receiver sees it; one without exactly one ErrorInfo is not made."""

    code: grpc.StatusCode
    reason: str
    domain: str
    message: str
    metadata: dict[str, str]
    fields: tuple[str, ...]
    retry_after_ms: int | None

    @classmethod
    def of_status(cls, status: status_pb2.Status) -> Self:
        infos, fields, retry = [], [], None
        for detail in status.details:
            info, bad, wait = (
                error_details_pb2.ErrorInfo(),
                error_details_pb2.BadRequest(),
                error_details_pb2.RetryInfo(),
            )
            if detail.Unpack(info):
                infos.append(info)
            if detail.Unpack(bad):
                fields += [violation.field for violation in bad.field_violations]
            if detail.Unpack(wait):
                retry = wait.retry_delay.ToMilliseconds()
        (info,) = infos
        codes = {code.value[0]: code for code in grpc.StatusCode}
        return cls(
            codes[status.code],
            info.reason,
            info.domain,
            status.message,
            dict(info.metadata),
            tuple(fields),
            retry,
        )

    @classmethod
    def of_error(cls, error: grpc.aio.AioRpcError) -> Self:
        raw = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
        assert isinstance(raw, bytes), f"{error.code()} came without details: {error.details()}"
        refusal = cls.of_status(status_pb2.Status.FromString(raw))
        assert refusal.code is error.code()
        return refusal


def path_of(name: str) -> str:
    return f"/{METHODS[name].containing_service.full_name}/{name}"


def request_type(name: str) -> Any:
    return message_factory.GetMessageClass(METHODS[name].input_type)


def answer_type(name: str) -> Any:
    return message_factory.GetMessageClass(METHODS[name].output_type)


class Party:
    """A principal: a name, a key and a channel.

    Args:
        now_ms: the clock that requests are stamped by.
    """

    def __init__(self, channel: Any, caller: str, signer: Signer, now_ms: Callable[[], int]) -> None:
        self.channel = channel
        self.caller = caller
        self.signer = signer
        self.now_ms = now_ms

    async def call(self, name: str, request: Any = None, /, **fields: Any) -> Any:
        """A signed unary call, with a request or the fields of one."""
        body = (request or request_type(name)(**fields)).SerializeToString()
        method = self.channel.unary_unary(path_of(name))
        answer = await method(body, metadata=self.signed(name, body), timeout=30)
        return answer_type(name).FromString(answer)

    async def refused(self, name: str, request: Any = None, /, **fields: Any) -> Refusal:
        """A call of any kind whose refusal has to come."""
        request = request or request_type(name)(**fields)
        try:
            if METHODS[name].client_streaming:
                await self.upload(name, [request])
            elif METHODS[name].server_streaming:
                async with self.watch(name, request) as frames:
                    async for _ in frames:
                        pass
            else:
                await self.call(name, request)
        except grpc.aio.AioRpcError as error:
            return Refusal.of_error(error)
        raise AssertionError(f"{name} was answered")

    @asynccontextmanager
    async def watch(self, name: str, request: Any = None, /, **fields: Any) -> AsyncIterator["Frames"]:
        """A stream of answers for as long as the block lasts."""
        body = (request or request_type(name)(**fields)).SerializeToString()
        call = self.channel.unary_stream(path_of(name))(body, metadata=self.signed(name, body))
        try:
            yield Frames(call, answer_type(name))
        finally:
            call.cancel()

    async def upload(self, name: str, messages: Iterable[Any]) -> Any:
        """A stream of requests, signed over the first."""
        bodies = [message.SerializeToString() for message in messages]
        call = self.channel.stream_unary(path_of(name))
        answer = await call(bodies, metadata=self.signed(name, bodies[0]), timeout=30)
        return answer_type(name).FromString(answer)

    def signed(self, name: str, body: bytes) -> tuple[tuple[str, str], ...]:
        return request_metadata(self.signer, self.caller, path_of(name), body, self.now_ms())

    def open(self) -> "WorkerStream":
        """A stream on which nothing was said."""
        return WorkerStream(self)


class Frames:
    """The answers of one stream."""

    def __init__(self, call: Any, answer: Any) -> None:
        self._call = call
        self._answer = answer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        frame = await self._call.read()
        if frame is grpc.aio.EOF:
            # Raises when the end is none in order.
            code = await self._call.code()
            if code is not grpc.StatusCode.OK:
                raise grpc.aio.AioRpcError(
                    code,
                    await self._call.initial_metadata(),
                    await self._call.trailing_metadata(),
                    await self._call.details(),
                )
            raise StopAsyncIteration
        return self._answer.FromString(frame)

    async def next(self) -> Any:
        return await asyncio.wait_for(anext(self), 20)


class WorkerStream:
    """One call of `Session`; items are read in the background."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.call: Any = party.channel.stream_stream(path_of("Session"))()
        self.items: list[Any] = []
        self.seq = 0
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read_all())

    async def greet(self, **fields: Any) -> None:
        """Waits for the challenge and says hello."""
        challenge = await self.next("challenge")
        given: dict[str, Any] = {
            "principal_id": self.party.caller,
            "worker_id": "worker-1",
            "process_id": "process-1",
            "client_name": "raw",
            "client_version": "0.1.0",
            "protocol_version": 1,
            "credit": session_pb2.Credit(limit=fields.pop("limit", 10)),
        }
        hello = worker_service_pb2.WorkerHello(**(given | fields)).SerializeToString()
        signature = sign_session(
            self.party.signer, path_of("Session"), self.party.caller, challenge.nonce, hello
        )
        await self.send(hello=session_pb2.SignedHello(hello=hello, signature=signature))

    async def connect(self, **fields: Any) -> Any:
        """Says hello and waits for the verdicts on its inventory, which it returns."""
        await self.greet(**fields)
        await self.next("welcome")
        return await self.next("verdicts")

    async def send(self, **items: Any) -> None:
        """One frame with these items, each named by its arm."""
        self.seq += 1
        frame = worker_service_pb2.WorkerServiceSessionRequest(
            seq=self.seq,
            items=[worker_service_pb2.WorkerItem(**{arm: value}) for arm, value in items.items()],
        )
        await self.call.write(frame.SerializeToString())

    async def next(self, arm: str) -> Any:
        """The next item of that kind; the others stay."""

        def there() -> bool:
            return any(item.WhichOneof("item") == arm for item in self.items) or self._reader.done()

        async with self._news:
            await asyncio.wait_for(self._news.wait_for(there), 20)
            for place, item in enumerate(self.items):
                if item.WhichOneof("item") == arm:
                    del self.items[place]
                    return getattr(item, arm)
        raise AssertionError(f"the stream ended with {await self.call.code()} before {arm} came")

    async def settle(self) -> list[Any]:
        """Waits until everything that was sent is handled, and returns the items that came."""
        await self.send(heartbeat=session_pb2.Heartbeat(ping_id=self.seq + 1))
        await self.next("heartbeat")
        return self.items

    async def ask(self, **request: Any) -> Any:
        """A call that rides the stream; its reply."""
        await self.send(call=worker_service_pb2.WorkerCall(id=self.seq + 1, **request))
        return await self.next("reply")

    async def refusal(self) -> Refusal:
        """The status that the stream ends with."""
        await asyncio.wait_for(asyncio.shield(self._reader), 20)
        raw = dict(await self.call.trailing_metadata() or ()).get("grpc-status-details-bin")
        assert isinstance(raw, bytes)
        return Refusal.of_status(status_pb2.Status.FromString(raw))

    async def close(self) -> None:
        self.call.cancel()
        await asyncio.wait([self._reader])

    async def _read_all(self) -> None:
        answer = answer_type("Session")
        try:
            while (frame := await self.call.read()) is not grpc.aio.EOF:
                async with self._news:
                    self.items.extend(answer.FromString(frame).items)
                    self._news.notify_all()
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        finally:
            async with self._news:
                self._news.notify_all()
