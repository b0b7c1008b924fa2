"""Reading a site's inbox at the terminal."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from relay_service.client.errors import RelayError, ResultRefusedError
from relay_service.client.outcomes import ErrorOutcome, OkOutcome
from relay_service.client.site import Site
from relay_service.client.site_envelopes import JobResult
from relay_service.client.wire import disposition_of, job_end_of
from sealwork.relay.v1 import site_plane_pb2

Echo = Callable[[Mapping[str, object]], None]

_SETTLED_BY_JOB: Final = frozenset({"result_ready", "job_ended"})


class Watch:
    """Prints every notice once, and opens the results."""

    def __init__(self, echo: Echo, *, settle: bool) -> None:
        """Print with `echo`; `settle` lets the relay forget what was printed."""
        self._echo = echo
        self._settle = settle
        self._seen: set[str] = set()
        self._waiting: asyncio.Queue[site_plane_pb2.SiteNotice] = asyncio.Queue()

    def notice(self, notice: site_plane_pb2.SiteNotice) -> None:
        """Take a notice."""
        if notice.notice_id not in self._seen:
            self._seen.add(notice.notice_id)
            self._waiting.put_nowait(notice)

    async def run(self, site: Site, *, once: bool) -> None:
        """Print until cancelled, or until the inbox has been read.

        Raises:
            RelayError: The relay refuses, or cannot be reached.
        """
        async with site:
            if once:
                await site.read_inbox()
            while not once or not self._waiting.empty():
                await self._show(site, await self._waiting.get())

    async def _show(self, site: Site, notice: site_plane_pb2.SiteNotice) -> None:
        arm = notice.WhichOneof("notice")
        line: dict[str, object] = {"job_id": notice.job_id, "notice": arm or "unknown"}
        match arm:
            case "please_seal":
                line["runner_id"] = notice.please_seal.runner_id
            case "result_ready":
                line |= await _opened(site, notice)
            case "job_ended":
                line["reason"] = job_end_of(notice.job_ended).value
            case "job_requeued":
                line["count"] = notice.job_requeued.count
            case _:
                pass
        self._echo(line)
        if self._settle and arm in _SETTLED_BY_JOB:
            await site.settle(job_ids=[notice.job_id])
        elif self._settle and arm == "job_requeued":
            await site.settle(notice_ids=[notice.notice_id])


async def _opened(site: Site, notice: site_plane_pb2.SiteNotice) -> dict[str, object]:
    try:
        return result_fields(await site.read_result(notice.job_id))
    except (RelayError, ResultRefusedError) as error:
        return {"disposition": disposition_of(notice.result_ready.disposition), "refused": str(error)}


def result_fields(result: JobResult) -> dict[str, object]:
    """Return a result as an object for programs."""
    fields: dict[str, object] = {
        "job_id": result.job_id,
        "disposition": result.disposition,
        "runner_id": result.runner_id,
        "runner_owner": result.runner_owner,
        "device_key_id": result.device_key_id,
        "model": result.ran.model,
        "duration_ms": result.ran.duration_ms,
    }
    match result.outcome:
        case OkOutcome(text=text):
            fields["text"] = text
        case ErrorOutcome(code=code, message=message, retryable=retryable):
            fields |= {"code": code, "message": message, "retryable": retryable}
        case _:
            pass
    return fields
