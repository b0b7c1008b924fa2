"""Rows of a site's inbox as messages."""

from relay_service.core.model import Claim, Disposition, Notice, NoticeKind, RoutedJob
from relay_service.planes import convert
from sealwork.relay.v1 import site_plane_pb2


def notice_to_proto(
    notice: Notice, now_ms: int, attempt: int = 1, inline: RoutedJob | None = None
) -> site_plane_pb2.SiteNotice:
    """A row as its message.

    Args:
        now_ms: the store's clock, from which spans are counted.
        attempt: how often this replica has sent the row, this time included.
        inline: the finished job whose result is to travel along.
    """
    message = site_plane_pb2.SiteNotice(
        notice_id=notice.notice_id,
        sequence=notice.sequence,
        job_id=notice.key.job_id,
        delivery_attempt=attempt,
        create_time=convert.timestamp_of(notice.created_at_ms),
    )
    match notice.kind:
        case NoticeKind.PLEASE_SEAL if notice.claim is not None:
            message.please_seal.CopyFrom(_please_seal(notice, notice.claim, now_ms))
        case NoticeKind.RESULT_READY if notice.claim is not None:
            message.result_ready.CopyFrom(_result_ready(notice, notice.claim, inline))
        case NoticeKind.JOB_ENDED if notice.end is not None:
            message.job_ended.reason = convert.JOB_ENDS[notice.end]
        case NoticeKind.JOB_REQUEUED if notice.requeue is not None:
            message.job_requeued.reason = convert.REQUEUE_CAUSES[notice.requeue]
            message.job_requeued.count = notice.count
        case _:
            # A row that lacks what its kind needs says nothing, and stays until settled.
            pass
    return message


def _please_seal(notice: Notice, claim: Claim, now_ms: int) -> site_plane_pb2.PleaseSeal:
    until_ms = notice.seal_until_ms if notice.seal_until_ms is not None else now_ms
    return site_plane_pb2.PleaseSeal(
        lease_id=claim.lease_id,
        runner_id=claim.runner_id,
        device=convert.identity_to_proto(claim.device),
        seal_by_time=convert.timestamp_of(until_ms),
        seal_within=convert.duration_of(until_ms - now_ms),
    )


def _result_ready(notice: Notice, claim: Claim, inline: RoutedJob | None) -> site_plane_pb2.ResultReady:
    ready = site_plane_pb2.ResultReady(
        lease_id=claim.lease_id,
        disposition=convert.DISPOSITIONS[notice.disposition or Disposition.ERROR],
        size_bytes=notice.result_bytes,
        runner_id=claim.runner_id,
        device=convert.identity_to_proto(claim.device),
        runner_owner=claim.owner,
    )
    if inline is not None and inline.result is not None:
        ready.envelope.CopyFrom(convert.envelope_to_proto(inline.result))
    return ready
