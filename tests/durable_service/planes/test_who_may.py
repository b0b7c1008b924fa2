"""For every method of every service: who may call it, and that what is another's is not there."""

from collections.abc import AsyncIterator

import grpc
import pytest

from durable_service.planes.gate import ROLES
from durable_service.principals import Role
from sealwork.durable.v1 import lease_pb2, task_pb2
from tests.durable_service.durable_fixture import serving
from tests.durable_service.planes.every_method import WITHOUT_A_TASK, Scene, prepare
from tests.durable_service.raw_client import METHODS, Refusal

ABOUT_A_TASK = sorted(METHODS.keys() - WITHOUT_A_TASK.keys())
# A principal with that role alone.
HOLDERS = {
    Role.SUBMITTER: "bob",
    Role.WORKER: "painter",
    Role.APPROVER: "dave",
    Role.OPERATOR: "operator",
    Role.ADMIN: "admin",
}


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with serving() as service:
        yield await Scene(service).build()


async def told(scene: Scene, caller: str, name: str) -> Refusal:
    return await scene.service.party(caller).refused(name, scene.request(name))


def without_task(refusal: Refusal) -> tuple[object, ...]:
    return refusal.code, refusal.reason, refusal.domain, refusal.message, refusal.metadata, refusal.fields


def test_every_method_has_its_roles() -> None:
    assert set(ROLES) == set(METHODS)


@pytest.mark.parametrize("name", ABOUT_A_TASK)
async def test_in_another_tenant_nothing_is_there(scene: Scene, name: str) -> None:
    caller = "eve-worker" if Role.WORKER in ROLES[name] and name != "UpdateExtension" else "eve"
    refusal = await told(scene, caller, name)
    before = await scene.service.task()

    reason = "APPROVAL_NOT_FOUND" if name in {"GetApproval", "DecideApproval"} else "TASK_NOT_FOUND"
    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, reason)
    # Word for word as if there were no such task anywhere.
    async with serving() as empty:
        stranger = Scene(empty)
        stranger.lease = lease_pb2.LeaseRef(task_id="task", worker_id="worker-1", fence=1)
        stranger.approval_id, stranger.prepared_hash = scene.approval_id, scene.prepared_hash
        assert without_task(await told(stranger, caller, name)) == without_task(refusal)
    assert await scene.service.task() == before


@pytest.mark.parametrize("name", [name for name in ABOUT_A_TASK if Role.SUBMITTER in ROLES[name]])
async def test_another_actor_of_the_tenant_finds_nothing(scene: Scene, name: str) -> None:
    refusal = await told(scene, "bob", name)

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")


@pytest.mark.parametrize("name", ["GetApproval", "DecideApproval"])
async def test_an_approval_that_is_addressed_to_another(scene: Scene, name: str) -> None:
    refusal = await told(scene, "dave", name)

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "APPROVAL_NOT_FOUND")


@pytest.mark.parametrize(
    "name", [name for name in ABOUT_A_TASK if Role.WORKER in ROLES[name] and name != "UpdateExtension"]
)
async def test_a_worker_finds_nothing_of_drivers_that_are_not_its_own(scene: Scene, name: str) -> None:
    refusal = await told(scene, "painter", name)

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.NOT_FOUND, "TASK_NOT_FOUND")


@pytest.mark.parametrize("role", list(Role))
async def test_without_the_role_nothing_is_answered(scene: Scene, role: Role) -> None:
    for name, roles in ROLES.items():
        request = WITHOUT_A_TASK.get(name) if name in WITHOUT_A_TASK else scene.request(name)
        if role in roles or request is None:
            continue
        refusal = await scene.service.party(HOLDERS[role]).refused(name, request)
        assert (refusal.code, refusal.reason) == (
            grpc.StatusCode.PERMISSION_DENIED,
            "ROLE_NOT_ALLOWED",
        ), name


def test_a_worker_never_decides() -> None:
    assert ROLES["DecideApproval"] == {Role.APPROVER}


LEASED = [name for name in ABOUT_A_TASK if "lease" in METHODS[name].input_type.fields_by_name]


@pytest.mark.parametrize("name", sorted({*LEASED, "PutArtifact"} - {"UpdateExtension"}))
async def test_a_lease_is_good_for_the_principal_that_claimed_alone(scene: Scene, name: str) -> None:
    # The same tenant, the same driver, the same worker id and fence; another key.
    refusal = await told(scene, "other-worker", name)

    assert (refusal.code, refusal.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "LEASE_LOST")
    assert refusal.metadata["current_fence"] == "1"


async def test_renewals_of_what_is_not_ones_own_are_lost(scene: Scene) -> None:
    for caller in ("other-worker", "painter", "eve-worker"):
        answer = await scene.service.call(caller, "RenewLeases", leases=[scene.lease])
        (verdict,) = answer.verdicts
        assert verdict.state == lease_pb2.LEASE_STATE_LOST
        assert not verdict.HasField("remaining")
    assert (await scene.service.task()).lease.remaining.ToMilliseconds() == 60_000


async def test_an_extension_by_expected_revision_is_for_admins(scene: Scene) -> None:
    refusal = await told(scene, "worker", "UpdateExtension")

    assert refusal.reason == "ROLE_NOT_ALLOWED"


async def test_a_driver_that_the_credential_does_not_name(scene: Scene) -> None:
    refusal = await scene.service.party("painter").refused(
        "ClaimNext", claim_id="c", worker_id="w", drivers=[task_pb2.DriverRef(id="mail", version=1)]
    )
    version = await scene.service.party("worker").refused(
        "ClaimNext", claim_id="c", worker_id="w", drivers=[task_pb2.DriverRef(id="post", version=1)]
    )

    assert refusal.reason == version.reason == "ROLE_NOT_ALLOWED"


async def test_lists_of_another_tenant_are_empty(scene: Scene) -> None:
    service = scene.service
    stats = (await service.call("eve", "GetStats")).stats

    assert not (await service.call("eve", "ListTasks")).tasks
    assert not (await service.call("eve", "ListPendingApprovals")).approvals
    assert not (await service.call("eve", "ListUnknownActions")).actions
    assert not (await service.call("eve", "PurgeTasks")).purged_task_ids
    assert (stats.live_leases, stats.unknown_actions, stats.pending_approvals, len(stats.tasks)) == (
        0,
        0,
        0,
        0,
    )
    purge = await service.call("eve", "PurgeTasks", task_ids=["task"])
    assert [skipped.reason for skipped in purge.skipped] == [1]


async def test_the_same_task_id_in_two_tenants(scene: Scene) -> None:
    answer = await scene.service.create(caller="eve")

    assert answer.created
    assert (await scene.service.call("worker", "PrepareAction", prepare(scene.lease, "more"))).created
