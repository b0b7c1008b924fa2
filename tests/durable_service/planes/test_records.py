"""Journals, artifacts, checkpoints; and what operators do."""

from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from durable_service.core.binding import blob_key, bytes_digest
from durable_service.core.definition import TaskKey
from sealwork.durable.v1 import action_pb2, admin_service_pb2, lease_pb2, record_service_pb2, task_pb2
from tests.durable_service.durable_fixture import DurableUnderTest, serving
from tests.durable_service.planes.every_method import BYTES, HOUR, Scene, header
from tests.durable_service.raw_client import Refusal
from tests.harness.waiting import eventually


def chunk(data: bytes) -> record_service_pb2.PutArtifactRequest:
    return record_service_pb2.PutArtifactRequest(chunk=data)


async def upload_refused(service: DurableUnderTest, *messages: Any) -> Refusal:
    try:
        await service.party("worker").upload("PutArtifact", messages)
    except grpc.aio.AioRpcError as error:
        return Refusal.of_error(error)
    raise AssertionError("the upload was answered")


async def read(service: DurableUnderTest, **fields: Any) -> tuple[Any, bytes]:
    async with service.party("alice").watch("GetArtifact", task_id="task", **fields) as frames:
        parts = [part async for part in frames]
    assert all(0 < len(part.chunk) <= 65_536 for part in parts[1:])
    return parts[0].artifact, b"".join(part.chunk for part in parts)


class TestArtifacts:
    async def test_there_and_back_in_chunks(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        data = bytes(range(256)) * 1_000
        parts = [chunk(data[start : start + 65_536]) for start in range(0, len(data), 65_536)]
        answer = await service.party("worker").upload("PutArtifact", [header(lease, data), *parts])
        reference, back = await read(service, artifact_id="artifact")
        _, rest = await read(service, artifact_id="artifact", offset_bytes=255_999)

        assert answer.created
        assert answer.artifact == reference
        assert (reference.size_bytes, reference.media_type) == (256_000, "text/plain")
        assert (back, rest) == (data, b"\xff")

    async def test_no_bytes_at_all(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.party("worker").upload("PutArtifact", [header(lease, b"")])

        assert (await read(service, artifact_id="artifact"))[1] == b""

    async def test_what_is_refused(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        good = header(lease)
        lost = lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=9)
        refusals = {
            "none first": await upload_refused(service, chunk(BYTES)),
            "twice": await upload_refused(service, good, good),
            "empty chunk": await upload_refused(service, good, chunk(b"")),
            "large chunk": await upload_refused(service, good, chunk(b"x" * 65_537)),
            "short": await upload_refused(service, good, chunk(BYTES[:-1])),
            "long": await upload_refused(service, good, chunk(BYTES + b"x")),
            "other": await upload_refused(service, good, chunk(BYTES[::-1])),
            "too large": await upload_refused(service, header(lease, size_bytes=1_000_001)),
            "no time": await upload_refused(service, header(lease, time_to_live=Duration())),
            "lost": await upload_refused(service, header(lost)),
            "checkpoint": await upload_refused(service, header(lease, artifact_id="snapshot:x")),
        }

        assert {name: refusal.reason for name, refusal in refusals.items()} == {
            "none first": "PROTOCOL_VIOLATION",
            "twice": "PROTOCOL_VIOLATION",
            "empty chunk": "PROTOCOL_VIOLATION",
            "large chunk": "PROTOCOL_VIOLATION",
            "short": "ARTIFACT_CONTENT_MISMATCH",
            "long": "ARTIFACT_CONTENT_MISMATCH",
            "other": "ARTIFACT_CONTENT_MISMATCH",
            "too large": "ARTIFACT_TOO_LARGE",
            "no time": "TTL_RANGE",
            "lost": "LEASE_LOST",
            "checkpoint": "INVALID_IDENTIFIER",
        }
        assert [key async for key in service.blobs.keys_before(1 << 60)] == []

    async def test_other_bytes_under_the_same_id(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.party("worker").upload("PutArtifact", [header(lease), chunk(BYTES)])
        refusal = await upload_refused(service, header(lease, b"other"))

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "ARTIFACT_IMMUTABLE")
        assert refusal.metadata["existing_digest"] == bytes_digest(BYTES)

    async def test_its_time_is_over(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        short = header(lease, time_to_live=Duration(seconds=1))
        await service.party("worker").upload("PutArtifact", [short, chunk(BYTES)])
        await service.pass_time(1_000)
        refusal = await service.party("alice").refused("GetArtifact", task_id="task", artifact_id="artifact")

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "ARTIFACT_EXPIRED")

    async def test_bytes_that_are_gone_or_damaged(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        await service.party("worker").upload("PutArtifact", [header(lease), chunk(BYTES)])
        key = blob_key(TaskKey("acme", "task"), "artifact", bytes_digest(BYTES))
        await service.blobs.delete(key)
        gone = await service.party("alice").refused("GetArtifact", task_id="task", artifact_id="artifact")
        await service.blobs.put(key, BYTES[::-1])
        damaged = await service.party("alice").refused("GetArtifact", task_id="task", artifact_id="artifact")

        assert (gone.code, gone.reason) == (grpc.StatusCode.DATA_LOSS, "BLOB_CORRUPT")
        assert damaged.reason == "BLOB_CORRUPT"

    async def test_what_a_look_up_has_found_is_kept(self, service: DurableUnderTest) -> None:
        await Scene(service).build()
        await service.pass_time(60_000)
        claim = {"task_id": "task", "claim_id": "r", "worker_id": "worker-1"}
        claimed = (await service.call("worker", "ClaimForRecovery", **claim)).claimed
        lease = lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=claimed.lease.fence)
        await service.party("worker").upload(
            "PutArtifact", [header(lease, b"evidence", artifact_id="found"), chunk(b"evidence")]
        )
        checkpoint = await service.party("worker").refused(
            "PutCheckpoint", lease=lease, checkpoint_id="c2", value=b"1", time_to_live=HOUR
        )

        assert (await read(service, artifact_id="found"))[1] == b"evidence"
        assert checkpoint.reason == "TASK_NOT_RUNNING"


class TestCheckpoints:
    async def test_there_and_back(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        put = await service.call(
            "worker",
            "PutCheckpoint",
            lease=lease,
            checkpoint_id="one",
            value=b'{ "b": 1, "a": [] }',
            time_to_live=HOUR,
        )
        got = await service.call("alice", "GetSnapshot", task_id="task", checkpoint_id="one")

        assert got.value == b'{"a":[],"b":1}'
        assert got.artifact == put.artifact
        assert got.artifact.digest == bytes_digest(b'{"a":[],"b":1}')
        assert got.artifact.artifact_id == "snapshot:one"

    async def test_another_value_under_the_same_id(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        fields = {"lease": lease, "checkpoint_id": "one", "time_to_live": HOUR}
        await service.call("worker", "PutCheckpoint", value=b"1", **fields)
        refusal = await service.party("worker").refused("PutCheckpoint", value=b"2", **fields)
        missing = await service.party("alice").refused("GetSnapshot", task_id="task", checkpoint_id="two")

        assert refusal.reason == "ARTIFACT_IMMUTABLE"
        assert missing.reason == "SNAPSHOT_NOT_FOUND"


class TestJournal:
    async def test_pages(self, service: DurableUnderTest) -> None:
        await service.running()
        first = await service.call("alice", "ListEvents", task_id="task", page_size=2)
        rest = await service.call(
            "alice", "ListEvents", task_id="task", after_sequence=first.next_after_sequence
        )

        assert [event.sequence for event in first.events] == [1, 2]
        assert [event.type for event in rest.events] == ["lease.granted"]
        assert rest.events[0].attempt_id == "claim-of-task"
        assert (first.earliest_sequence, first.latest_sequence, rest.next_after_sequence) == (1, 3, 3)

    async def test_a_cursor_ahead(self, service: DurableUnderTest) -> None:
        await service.running()
        refusal = await service.party("alice").refused("ListEvents", task_id="task", after_sequence=4)

        assert (refusal.code, refusal.reason) == (grpc.StatusCode.OUT_OF_RANGE, "EVENT_GAP")

    async def test_the_types_of_the_service_are_not_for_workers(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        refusal = await service.party("worker").refused(
            "AppendEvent", lease=lease, event_id="e", type="task.state", data=b"{}"
        )

        assert (refusal.reason, refusal.fields) == ("INVALID_IDENTIFIER", ("type",))


class TestOperators:
    async def test_stats(self, service: DurableUnderTest) -> None:
        scene = await Scene(service).build()
        await service.create("queued")
        await service.pass_time(5_000)
        stats = (await service.call("operator", "GetStats")).stats

        assert (stats.server_instance, stats.store, stats.durable) == ("durable-test", "memory", False)
        assert {each.state: each.count for each in stats.tasks} == {
            task_pb2.TASK_STATE_QUEUED: 1,
            task_pb2.TASK_STATE_RUNNING: 1,
        }
        assert (stats.claimable_tasks, stats.oldest_claimable.ToMilliseconds()) == (1, 5_000)
        assert (stats.live_leases, stats.unknown_actions, stats.pending_approvals) == (1, 1, 1)
        assert stats.uptime.ToMilliseconds() == 5_000
        assert scene.approval_id

    async def test_unknown_actions(self, service: DurableUnderTest) -> None:
        await Scene(service).build()
        await service.pass_time(60_000)

        async def both_are_unknown() -> bool:
            # The lease has run out; the sweep that says so is a write of its own.
            return len((await service.call("operator", "ListUnknownActions")).actions) == 2

        await eventually(both_are_unknown)
        listed = await service.call("operator", "ListUnknownActions", page_size=1)
        rest = await service.call(
            "operator", "ListUnknownActions", page_size=1, page_token=listed.next_page_token
        )
        old = await service.call("operator", "ListUnknownActions", min_age=Duration(seconds=60))

        assert [each.action.action_id for each in listed.actions] == ["lost"]
        assert [each.action.action_id for each in rest.actions] == ["sent"]
        assert [each.action.action_id for each in old.actions] == ["lost"]
        assert listed.actions[0].action.state == action_pb2.ACTION_STATE_UNKNOWN
        assert listed.actions[0].driver.id == "mail"

    async def test_purging(self) -> None:
        async with serving(retention_ms=10_000) as service:
            for name in ("old", "young", "running"):
                await service.create(name)
            await service.call("alice", "CancelTask", task_id="old")
            await service.pass_time(10_000)
            await service.call("alice", "CancelTask", task_id="young")
            names = ["old", "young", "running", "none"]
            dry = await service.call("admin", "PurgeTasks", task_ids=names, dry_run=True)
            wet = await service.call("admin", "PurgeTasks", task_ids=names)
            again = await service.party("alice").refused("CreateTask", task_id="old")

            assert list(dry.purged_task_ids) == list(wet.purged_task_ids) == ["old"]
            assert {each.task_id: each.reason for each in wet.skipped} == {
                "young": admin_service_pb2.PURGE_SKIP_REASON_TOO_YOUNG,
                "running": admin_service_pb2.PURGE_SKIP_REASON_NOT_TERMINAL,
                "none": admin_service_pb2.PURGE_SKIP_REASON_NOT_FOUND,
            }
            assert again.reason == "FIELD_INVALID"
            await service.pass_time(10_000)
            rest = await service.call("admin", "PurgeTasks")
            assert (list(rest.purged_task_ids), rest.more) == (["young"], False)

    async def test_an_id_that_was_purged_stays_used(self) -> None:
        from tests.durable_service.durable_fixture import creation

        async with serving(retention_ms=0) as service:
            lease = await service.running()
            await service.party("worker").upload("PutArtifact", [header(lease), chunk(BYTES)])
            await service.call("worker", "CompleteTask", lease=lease)
            await service.call("admin", "PurgeTasks", task_ids=["task"])
            refusal = await service.party("alice").refused("CreateTask", creation())

            assert (refusal.code, refusal.reason) == (grpc.StatusCode.ALREADY_EXISTS, "TASK_PURGED")
            assert [key async for key in service.blobs.keys_before(1 << 60)] == []

    async def test_extensions(self, service: DurableUnderTest) -> None:
        lease = await service.running()
        fields = {"task_id": "task", "name": "host"}
        first = await service.call("admin", "UpdateExtension", value=b"1", expected_revision=0, **fields)
        conflict = await service.party("admin").refused(
            "UpdateExtension", value=b"2", expected_revision=0, **fields
        )
        second = await service.call("worker", "UpdateExtension", name="host", value=b"2", lease=lease)
        removed = await service.call("admin", "UpdateExtension", expected_revision=2, **fields)

        assert (first.extension.revision, first.extension.value) == (1, b"1")
        assert (conflict.code, conflict.reason) == (grpc.StatusCode.ABORTED, "EXTENSION_CONFLICT")
        assert conflict.metadata == {"current_revision": "1"}
        assert (second.extension.revision, second.extension.value) == (2, b"2")
        assert not removed.HasField("extension")

    @pytest.mark.parametrize("guard", [{}, {"expected_revision": 0, "name": "sealwork.x"}])
    async def test_extensions_that_are_refused(
        self, service: DurableUnderTest, guard: dict[str, Any]
    ) -> None:
        await service.create()
        fields = {"task_id": "task", "name": "host", "value": b"1"} | guard
        refusal = await service.party("admin").refused("UpdateExtension", **fields)

        assert refusal.reason in {"FIELD_INVALID", "RESERVED_EXTENSION"}
