"""Bad items on a device's stream: a FrameError with the field at fault, and nothing changes."""

from typing import Any

import grpc
import pytest

from sealwork.relay.v1 import daemon_plane_pb2, job_pb2
from sealwork.session.v1 import session_pb2
from tests.relay_service.planes.scene import BAD_IDS, HELD, SEALED, leases, scene
from tests.relay_service.raw_client import Refusal, row
from tests.relay_service.relay_fixture import Serve

Ref = job_pb2.LeaseRef
KINDS: dict[str, Any] = {
    "grant_ack": daemon_plane_pb2.GrantAck,
    "cancel_ack": daemon_plane_pb2.CancelAck,
    "renew": daemon_plane_pb2.Renew,
    "inventory": daemon_plane_pb2.Inventory,
}


def lease_items() -> list[tuple[str, Any, str]]:
    """Every item that names leases, with everything that may be wrong with them."""
    found: list[tuple[str, Any, str]] = []
    for arm, kind in KINDS.items():
        field = "inventory.leases" if arm == "inventory" else "leases"
        found += [(arm, kind(leases=leases(501)), field), (arm, kind(leases=[HELD, HELD]), f"{field}[1]")]
        if arm != "inventory":
            found.append((arm, kind(), field))
        for bad in BAD_IDS.values():
            named = Ref(job_id=bad, lease_id="l"), Ref(job_id="j", lease_id=bad)
            found.append((arm, kind(leases=[HELD, named[0]]), f"{field}[1].job_id"))
            found.append((arm, kind(leases=[HELD, named[1]]), f"{field}[1].lease_id"))
    return found


def other_items() -> list[tuple[str, Any, str]]:
    """Matrices and credit."""
    changed = daemon_plane_pb2.CapabilitiesChanged
    withheld = job_pb2.WithheldKind
    one = job_pb2.WithheldClaimant(service="a", offer_scope=job_pb2.AUDIENCE_TEAM)
    bare = job_pb2.WithheldClaimant(service="b")
    matrices: list[tuple[Any, str]] = [
        (changed(matrix=[row()] * 65), "matrix"),
        (changed(withheld=[withheld(kind="k", claimants=[one, one])] * 65), "withheld"),
        (changed(withheld=[withheld(kind="k")]), "withheld[0].claimants"),
        (changed(withheld=[withheld(kind="k", claimants=[one])]), "withheld[0].claimants"),
        (changed(withheld=[withheld(claimants=[one, one])]), "withheld[0].kind"),
        (
            changed(withheld=[withheld(kind="k", claimants=[one, bare])]),
            "withheld[0].claimants[1].offer_scope",
        ),
    ]
    found: list[tuple[str, Any, str]] = [
        *(("capabilities_changed", matrix, field) for matrix, field in matrices),
        ("credit", session_pb2.Credit(limit=1_000_001), "credit.limit"),
        ("credit", session_pb2.Credit(limit=2**64 - 1), "credit.limit"),
    ]
    for field in ("kind", "service", "backend_id", "model"):
        for bad in BAD_IDS.values():
            rows = [row(), row()]
            setattr(rows[1], field, bad)
            found.append(("capabilities_changed", changed(matrix=rows), f"matrix[1].{field}"))
    for field in ("backend_class", "offer_scope"):
        for number in (0, 99, -1):
            bad_row = row()
            setattr(bad_row, field, number)
            found.append(("capabilities_changed", changed(matrix=[bad_row]), f"matrix[0].{field}"))
    return found


@pytest.mark.parametrize("arm", [*KINDS, "capabilities_changed", "credit"])
async def test_a_bad_item_is_reported_by_name_and_changes_nothing(arm: str, serve: Serve) -> None:
    async with scene(serve) as relay:
        stream = await relay.daemon().connect(limit=0, inventory={"leases": [HELD, SEALED]})
        await stream.settle()
        stream.items.clear()
        presence = await relay.store.presence("runner-1")
        before = await relay.dump()
        cases = [case for case in (*lease_items(), *other_items()) if case[0] == arm]
        for number, (_, value, field) in enumerate(cases, 1):
            seq = await stream.send(**{arm: value})
            error = await stream.next("frame_error")
            assert (error.frame_seq, error.item_index) == (seq, 0), field
            refusal = Refusal.of_status(error.status)
            assert (refusal.code, refusal.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
            assert field in refusal.fields
            if not number % 15:
                # Only so many are forgiven within a minute.
                leased = [HELD, SEALED]
                await relay.clock.advance_async(0)
                stream = await relay.daemon().connect(limit=0, inventory={"leases": leased})
                await stream.settle()
        assert await relay.dump() == before
        assert await relay.store.presence("runner-1") == presence
        await stream.settle()
        assert [
            item.WhichOneof("item") for item in stream.items if item.WhichOneof("item") == "granted"
        ] == []


async def test_leases_that_are_not_ones_own_are_left_alone(serve: Serve) -> None:
    """Acknowledging, renewing or naming another's lease does nothing to it."""
    async with scene(serve) as relay:
        await relay.cancel("held")
        before = await relay.dump()
        stream = await relay.daemon("runner-2").connect(limit=0)
        for arm in ("grant_ack", "cancel_ack", "renew", "inventory"):
            await stream.send(**{arm: KINDS[arm](leases=[HELD, SEALED])})
        await stream.settle()
        assert not stream.take("frame_error")
        assert await relay.dump() == before
        states = [verdict.state for verdicts in stream.take("verdicts") for verdict in verdicts.verdicts]
        assert states == [job_pb2.LEASE_STATE_LOST] * 4
