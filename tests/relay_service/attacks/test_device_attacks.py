"""A relay, or somebody with its power, against a device: what it forges is refused, and nothing runs.

Everything goes over real sockets. The control plane is honest, the relay is not; the site is honest unless a
test says so.
"""

import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from relay_service.client.grants import sign_grant
from relay_service.client.keys import Keys
from relay_service.client.prompt_log import PromptLog
from relay_service.client.succession import SuccessionLink, sign_link
from relay_service.client.wire import identity_to_proto, timestamp_of
from sealwork.relay.v1 import daemon_plane_pb2, job_pb2, site_directory_pb2
from service_common.signing import Signer
from tests.harness.waiting import eventually
from tests.relay_service.client.daemon_words import TEAM, consented
from tests.relay_service.client.granting import CONTROL, GRANT, signed
from tests.relay_service.client.real_relay import (
    DEVICE_KEYS,
    OTHER_DEVICE_KEYS,
    SITE_KEYS,
    STRANGER_KEYS,
)
from tests.relay_service.client.scripted_device import (
    START_MS,
    PlayedRelay,
    ServerItem,
    lease_ref,
    payload,
    played_relay,
)

REFUSED = daemon_plane_pb2.RELEASE_REASON_REFUSED
BAD_ENVELOPE = daemon_plane_pb2.RELEASE_REASON_BAD_ENVELOPE
MALLORY = Keys(b"\x0b" * 32, b"\x0c" * 32, 1)


def device(folder: Path, **options: Any) -> AbstractAsyncContextManager[PlayedRelay]:
    """A device that is paired with a control plane, keeps its memory in a folder, and serves the team."""
    given: dict[str, Any] = {
        "control_plane_key": CONTROL.public_key,
        "spool_dir": folder / "spool",
        "prompt_log": PromptLog(folder / "prompts.jsonl"),
        "matrix": (TEAM,),
        **options,
    }
    return played_relay(**given)


async def given_back(relay: PlayedRelay, reason: Any, lease: str = "l-1") -> None:
    """The device gives the job back for this reason, and has run nothing of it."""
    request = await relay.released()
    assert (request.reason, list(request.leases)) == (reason, [lease_ref("j-1", lease)])
    assert relay.work.started == []


def tampered(**changes: Any) -> job_pb2.SignedGrant:
    """An honest grant with something changed after it was signed."""
    grant = signed(user="bob")
    for name, value in changes.items():
        setattr(grant, name, value)
    return grant


# -- grants -----------------------------------------------------------------------------


async def test_the_honest_grant_is_good(tmp_path: Path) -> None:
    """Without this, the refusals below would prove nothing."""
    async with device(tmp_path) as relay:
        await relay.start("j-1", owner="bob", grant=signed(user="bob"))


@pytest.mark.parametrize(
    "forger", [Signer(b"\x06" * 32), DEVICE_KEYS.signer, SITE_KEYS.signer, MALLORY.signer]
)
async def test_a_grant_that_somebody_else_has_signed(tmp_path: Path, forger: Signer) -> None:
    async with device(tmp_path) as relay:
        await relay.grant("j-1", owner="bob", grant=signed(user="bob", signer=forger))
        await given_back(relay, REFUSED)


@pytest.mark.parametrize(
    "grant",
    [
        tampered(user="mallory"),
        tampered(service="other"),
        tampered(grant_id="another"),
        tampered(signature=b"\x00" * 64),
        tampered(signature=b""),
        tampered(signature=signed().signature),
    ],
)
async def test_a_grant_that_was_changed_on_the_way(tmp_path: Path, grant: job_pb2.SignedGrant) -> None:
    async with device(tmp_path) as relay:
        owner = "mallory" if grant.user == "mallory" else "bob"
        await relay.grant("j-1", owner=owner, grant=grant)
        await given_back(relay, REFUSED)


async def test_no_grant_at_all(tmp_path: Path) -> None:
    async with device(tmp_path) as relay:
        await relay.grant("j-1")
        await given_back(relay, REFUSED)


@pytest.mark.parametrize(
    ("fields", "stub"),
    [
        ({"job_id": "j-2"}, {}),
        ({"owner": "carol"}, {}),
        ({"user": "carol"}, {}),
        ({"user": "alice"}, {}),
        ({"site": STRANGER_KEYS.key_id}, {}),
        ({"kind": "llm.chat"}, {}),
        ({"purpose": "another purpose"}, {}),
        ({}, {"site": STRANGER_KEYS}),
    ],
)
async def test_an_honest_grant_for_something_else(
    tmp_path: Path, fields: dict[str, Any], stub: dict[str, Any]
) -> None:
    grant = sign_grant(replace(GRANT, **{"user": "bob", **fields}), CONTROL)
    async with device(tmp_path, pins=[SITE_KEYS.public, STRANGER_KEYS.public]) as relay:
        await relay.grant("j-1", owner="bob", grant=grant, **stub)
        await given_back(relay, REFUSED)


@pytest.mark.parametrize("issued_at_ms", [START_MS - 120_001, START_MS + 30_001, 1])
async def test_an_honest_grant_at_another_time(tmp_path: Path, issued_at_ms: int) -> None:
    async with device(tmp_path) as relay:
        await relay.grant("j-1", owner="bob", grant=signed(user="bob", issued_at_ms=issued_at_ms))
        await given_back(relay, REFUSED)


async def test_a_grant_that_was_used_before_the_restart(tmp_path: Path) -> None:
    grant = signed(user="bob")
    async with device(tmp_path) as relay:
        await relay.start("j-1", owner="bob", grant=grant)
    async with device(tmp_path) as relay:
        await relay.grant("j-1", owner="bob", grant=grant, lease="l-2")
        await given_back(relay, REFUSED, "l-2")


async def test_a_used_grant_and_a_relay_that_turns_its_clock_back(tmp_path: Path) -> None:
    """However far the relay leads the device's idea of the time: what is forgotten stays refused."""
    first, later = signed(user="bob"), START_MS + 600_000
    async with device(tmp_path) as relay:
        await relay.start("j-1", owner="bob", grant=first)
        relay.daemon._time._ahead_ms = -600_000
        newer = signed("j-2", user="bob", issued_at_ms=later)
        await relay.start("j-2", lease="l-2", owner="bob", grant=newer)
    async with device(tmp_path) as relay:
        await relay.grant("j-1", owner="bob", grant=first, lease="l-3")
        await given_back(relay, REFUSED, "l-3")
        # Nor one that was issued then and kept back until now.
        await relay.grant("j-3", owner="bob", grant=signed("j-3", user="bob"), lease="l-4")
        assert (await relay.released()).reason == REFUSED
        assert relay.work.started == []


# -- the keys of sites ------------------------------------------------------------------


def rotation(to: Keys, *links: SuccessionLink, **changes: Any) -> site_directory_pb2.ConsentedSite:
    succeeds = [{"identity": identity_to_proto(link.identity), "signature": link.signature} for link in links]
    until = timestamp_of(START_MS + 3_600_000)
    return consented(to, succeeds=succeeds, retiring_until_time=until, **changes)


HONEST = sign_link(SITE_KEYS, MALLORY.key_id)


@pytest.mark.parametrize(
    "links",
    [
        (SuccessionLink(SITE_KEYS.public, b"\x00" * 64),),
        # Signed by the very key that wants to be adopted.
        (SuccessionLink(SITE_KEYS.public, sign_link(MALLORY, SITE_KEYS.key_id).signature),),
        # An honest word for another heir.
        (sign_link(SITE_KEYS, STRANGER_KEYS.key_id),),
        # The right name over other keys.
        (SuccessionLink(replace(SITE_KEYS.public, encryption=MALLORY.public.encryption), HONEST.signature),),
        # A sound end and a forged beginning.
        (SuccessionLink(SITE_KEYS.public, b"\x01" * 64), sign_link(STRANGER_KEYS, MALLORY.key_id)),
        # Too long, however sound.
        (sign_link(SITE_KEYS, MALLORY.key_id),) * 65,
    ],
)
async def test_a_forged_succession_changes_nothing_and_is_told(
    tmp_path: Path, links: tuple[SuccessionLink, ...]
) -> None:
    log = tmp_path / "prompts.jsonl"
    async with played_relay(prompt_log=PromptLog(log)) as relay:
        changed: Any = {"directory": {"sites": [rotation(MALLORY, *links)]}}
        await relay.stream.send(ServerItem(sites_changed=changed), ServerItem(sites_changed=changed))
        await eventually(lambda: log.exists() and log.read_text())
        relay.server.unary["/sealwork.relay.v1.DaemonPlaneService/GetSites"] = lambda _: (
            daemon_plane_pb2.GetSitesResponse(**changed).SerializeToString()
        )
        await relay.grant("j-1", site=MALLORY)
        await relay.payload("j-1", site=MALLORY)
        await given_back(relay, REFUSED)

        # The pinned key serves on.
        await relay.start("j-2", lease="l-2")
    events = [line for line in map(json.loads, log.read_text().splitlines()) if "event" in line]
    assert [(line["event"], line["site"]) for line in events] == [
        ("succession-refused", MALLORY.key_id),
        ("first-job", SITE_KEYS.key_id),
    ]


async def test_other_keys_under_a_pinned_name(tmp_path: Path) -> None:
    """The relay keeps the site's identity key and gives out an encryption key of its own for answers."""
    swapped = replace(SITE_KEYS.public, encryption=MALLORY.public.encryption)
    other = Keys(SITE_KEYS.identity_seed, MALLORY.encryption_secret, 1)
    async with device(tmp_path) as relay:
        for identity in (swapped, other.public):
            entry = consented(SITE_KEYS)
            entry.identity.CopyFrom(identity_to_proto(identity))
            await relay.stream.send(ServerItem(sites_changed={"directory": {"sites": [entry]}}))
        relay.work.gate.set()
        await relay.start("j-1", grant=signed())
        request = await relay.completed()

        assert relay.daemon._pins.get(SITE_KEYS.key_id) == SITE_KEYS.public
        assert request.envelope.recipient_key_id == SITE_KEYS.key_id


async def test_an_old_key_of_a_site_that_the_relay_would_like_back(tmp_path: Path) -> None:
    async with device(tmp_path) as relay:
        moved = {
            "directory": {"sites": [rotation(STRANGER_KEYS, sign_link(SITE_KEYS, STRANGER_KEYS.key_id))]}
        }
        await relay.stream.send(ServerItem(sites_changed=moved))
        await eventually(lambda: relay.daemon._pins.get(STRANGER_KEYS.key_id))
        relay.clock.stall(3_600_000)
        back = {"directory": {"sites": [consented(SITE_KEYS), consented(STRANGER_KEYS)]}}
        await relay.stream.send(ServerItem(sites_changed=back))
        heir = {"directory": {"sites": [consented(STRANGER_KEYS), rotation(MALLORY, HONEST)]}}
        await relay.stream.send(ServerItem(sites_changed=heir))
        now = relay.clock.now_ms()
        for number, keys in enumerate((SITE_KEYS, MALLORY)):
            lease = f"l-{number}"
            grant = signed(f"j-{number}", site=keys.key_id, issued_at_ms=now)
            far = now + 900_000
            await relay.grant(f"j-{number}", lease=lease, site=keys, grant=grant, deadline_at_ms=far)
            assert (await relay.released()).reason == REFUSED

        assert relay.work.started == []


# -- envelopes --------------------------------------------------------------------------


def junk(**changes: Any) -> job_pb2.SealedEnvelope:
    envelope = payload("j-1")
    for name, value in changes.items():
        setattr(envelope, name, value)
    return envelope


GOOD = payload("j-1").ciphertext


@pytest.mark.parametrize(
    "envelope",
    [
        job_pb2.SealedEnvelope(),
        junk(ciphertext=b""),
        junk(ciphertext=b"\x00" * 48),
        junk(ciphertext=b"junk" * 8_000),
        junk(ciphertext=GOOD[:-1]),
        junk(ciphertext=bytes([*GOOD[:40], GOOD[40] ^ 1, *GOOD[41:]])),
        junk(direction=job_pb2.DIRECTION_RESULT),
        junk(direction=99),
        junk(recipient_key_id=OTHER_DEVICE_KEYS.key_id),
        junk(sender_key_id=""),
        payload("another job"),
        payload("j-1", device=OTHER_DEVICE_KEYS),
        payload("j-1", deadline_at_ms=START_MS),
    ],
)
async def test_a_junk_envelope_is_given_back_as_one(tmp_path: Path, envelope: job_pb2.SealedEnvelope) -> None:
    async with device(tmp_path) as relay:
        await relay.grant("j-1", grant=signed())
        ready = daemon_plane_pb2.PayloadReady(lease=lease_ref("j-1"), envelope=envelope)
        await relay.stream.send(ServerItem(payload_ready=ready))
        await given_back(relay, BAD_ENVELOPE)

        # It has used up nothing: the same job may still come, honestly sealed.
        assert not relay.daemon._ledger.is_spent(replace(GRANT, grant_id="grant of j-1"))
    assert not (tmp_path / "prompts.jsonl").exists()


@pytest.mark.parametrize("sender", [STRANGER_KEYS, MALLORY, DEVICE_KEYS])
@pytest.mark.parametrize("claims_to_be_the_site", [True, False])
async def test_a_payload_of_another_sender(tmp_path: Path, sender: Keys, claims_to_be_the_site: bool) -> None:
    """A pinned site, a stranger and the device itself are all strangers to a job of another site."""
    envelope = payload("j-1", site=sender)
    if claims_to_be_the_site:
        envelope.sender_key_id = SITE_KEYS.key_id
    async with device(tmp_path, pins=[SITE_KEYS.public, STRANGER_KEYS.public]) as relay:
        await relay.grant("j-1", grant=signed())
        ready = daemon_plane_pb2.PayloadReady(lease=lease_ref("j-1"), envelope=envelope)
        await relay.stream.send(ServerItem(payload_ready=ready))
        await given_back(relay, BAD_ENVELOPE)


# -- a relay that does too much ---------------------------------------------------------


async def test_grants_that_nobody_asked_for(tmp_path: Path) -> None:
    async with device(tmp_path, slots=2) as relay:
        for number in range(5):
            name, lease = f"j-{number}", f"l-{number}"
            await relay.grant(name, lease=lease, grant=signed(name))
            await relay.payload(name, lease=lease)
        given = [await relay.released() for _ in range(3)]
        await relay.begun(2)

        assert {request.reason for request in given} == {daemon_plane_pb2.RELEASE_REASON_PAUSE}
        assert {lease.job_id for request in given for lease in request.leases} == {"j-2", "j-3", "j-4"}
        assert relay.daemon.active == 2


async def test_sites_without_end(tmp_path: Path) -> None:
    log = tmp_path / "prompts.jsonl"
    crowd = [Keys(number.to_bytes(32), b"\x02" * 32, 1) for number in range(1, 400)]
    sites = [consented(SITE_KEYS), *map(consented, crowd)]
    async with played_relay(prompt_log=PromptLog(log)) as relay:
        # As many a frame as fit.
        for start in range(0, len(sites), 100):
            part = [sites[0], *sites[start : start + 100]]
            await relay.stream.send(ServerItem(sites_changed={"directory": {"sites": part}}))
        await relay.start("j-1")

        assert list(relay.daemon._pins) == [SITE_KEYS.key_id]
    assert len([line for line in log.read_text().splitlines() if "site-unknown" in line]) == 256
