"""Which jobs a site has published on one stream: what is said of them goes there first.

The process behind that stream is the one that has the payload at hand. A repeated
EnqueueJob, which changes nothing else, moves a job to the stream that it came on.
"""

from collections import OrderedDict

from relay_service.core.limits import QUEUED_JOBS_PER_SITE
from sealwork.relay.v1 import site_plane_pb2


class PublishedJobs:
    """Job ids, the latest ones when there are more than a site may have unfinished."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def note(self, call: site_plane_pb2.SiteCall) -> None:
        """Takes note of what a call publishes or settles."""
        match call.WhichOneof("request"):
            case "enqueue_job":
                self._add(call.enqueue_job.stub.id)
            case "enqueue_jobs":
                for stub in call.enqueue_jobs.stubs:
                    self._add(stub.id)
            case "ack_results":
                for job_id in call.ack_results.job_ids:
                    self._ids.pop(job_id, None)
            case _:
                pass

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._ids

    def _add(self, job_id: str) -> None:
        self._ids[job_id] = None
        self._ids.move_to_end(job_id)
        if len(self._ids) > QUEUED_JOBS_PER_SITE:
            self._ids.popitem(last=False)
