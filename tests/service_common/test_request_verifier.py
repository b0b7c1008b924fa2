import grpc
import pytest
from nacl.signing import SigningKey

from service_common.clocks import ManualClock
from service_common.errors import ServiceError
from service_common.request_verifier import RequestVerifier
from tests.service_common.loopback import KEY, NONCE, NOW_MS, OTHER_KEY, Directory, signed

METHOD = "/sealwork.relay.v1.DaemonPlaneService/ClaimJobs"
BODY = b"\x0a\x03abc"


class Ledger:
    """Keeps what it was asked."""

    def __init__(self) -> None:
        self.uses: list[tuple[str, str, int]] = []
        self.answer = True

    async def use_nonce(self, caller: str, nonce: str, ttl_ms: int) -> bool:
        self.uses.append((caller, nonce, ttl_ms))
        return self.answer


class Bench:
    """A verifier with everything around it in reach."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW_MS)
        self.directory = Directory()
        self.ledger = Ledger()
        self.verifier = RequestVerifier(self.directory, self.ledger, self.clock)

    async def refusal(self, metadata: object, body: bytes = BODY, method: str = METHOD) -> ServiceError:
        with pytest.raises(ServiceError) as caught:
            await self.verifier.verify(method, metadata, body)  # type: ignore[arg-type]
        return caught.value


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_a_signed_request_names_its_caller(bench: Bench) -> None:
    assert await bench.verifier.verify(METHOD, signed(METHOD, BODY), BODY) == "device-1"


async def test_a_signature_written_down_once_stays_valid(bench: Bench) -> None:
    # Made with the seed 00 01 02 ... 1f by OpenSSL.
    metadata = (
        ("sealwork-protocol", "1"),
        ("sealwork-caller", "device-1"),
        ("sealwork-issued-at", "1700000000000"),
        ("sealwork-nonce", "AAECAwQFBgcICQoLDA0ODw"),
        (
            "sealwork-signature",
            "YD8rw7M94rPuqawmM6L-32Z4JasnAH0PP7CZ08SL1zFCajI-tR_iK3Qqra409N3QzN6TpUKfgRPBZ_YEhdiFBw",
        ),
    )
    assert await bench.verifier.verify(METHOD, metadata, BODY) == "device-1"


@pytest.mark.parametrize("offset_ms", [-120_000, 0, 120_000])
async def test_the_window_includes_its_ends(bench: Bench, offset_ms: int) -> None:
    metadata = signed(METHOD, BODY, issued_at_ms=NOW_MS + offset_ms)
    assert await bench.verifier.verify(METHOD, metadata, BODY) == "device-1"


@pytest.mark.parametrize("offset_ms", [-120_001, 120_001])
async def test_outside_the_window_the_server_tells_its_time(bench: Bench, offset_ms: int) -> None:
    error = await bench.refusal(signed(METHOD, BODY, issued_at_ms=NOW_MS + offset_ms))
    assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert error.reason == "CLOCK_SKEW"
    assert error.metadata == {"server_time_ms": "1700000000000", "max_skew_ms": "120000"}


@pytest.mark.parametrize(("offset_ms", "ttl_ms"), [(-120_000, 10_001), (0, 130_001), (120_000, 250_001)])
async def test_a_nonce_is_remembered_beyond_the_end_of_its_window(
    bench: Bench, offset_ms: int, ttl_ms: int
) -> None:
    await bench.verifier.verify(METHOD, signed(METHOD, BODY, issued_at_ms=NOW_MS + offset_ms), BODY)
    assert bench.ledger.uses == [("device-1", NONCE, ttl_ms)]


async def test_a_used_nonce_is_a_replay(bench: Bench) -> None:
    bench.ledger.answer = False
    error = await bench.refusal(signed(METHOD, BODY))
    assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert error.reason == "REPLAYED"


async def test_a_changed_body_breaks_the_signature(bench: Bench) -> None:
    error = await bench.refusal(signed(METHOD, BODY), BODY + b"x")
    assert error.code is grpc.StatusCode.UNAUTHENTICATED
    assert error.reason == "BAD_SIGNATURE"


async def test_a_signature_is_good_for_its_method_alone(bench: Bench) -> None:
    other = "/sealwork.relay.v1.DaemonPlaneService/CompleteJob"
    assert (await bench.refusal(signed(METHOD, BODY), method=other)).reason == "BAD_SIGNATURE"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sealwork-issued-at", "1700000000001"),
        ("sealwork-nonce", "BAECAwQFBgcICQoLDA0ODw"),
        ("sealwork-caller", "device-2"),
    ],
)
async def test_every_header_is_signed(bench: Bench, key: str, value: str) -> None:
    bench.directory.keys["device-2"] = (KEY.verify_key.encode(),)
    metadata = tuple((name, value if name == key else old) for name, old in signed(METHOD, BODY))
    assert (await bench.refusal(metadata)).reason == "BAD_SIGNATURE"


async def test_an_unknown_caller_looks_like_a_bad_signature(bench: Bench) -> None:
    unknown = await bench.refusal(signed(METHOD, BODY, caller="device-9"))
    forged = await bench.refusal(signed(METHOD, BODY, key=OTHER_KEY))
    bench.directory.keys["device-0"] = ()
    keyless = await bench.refusal(signed(METHOD, BODY, caller="device-0"))
    assert unknown.reason == "BAD_SIGNATURE"
    for error in (forged, keyless):
        assert error.to_status("d") == unknown.to_status("d")


async def test_a_stale_request_is_stale_whoever_sent_it(bench: Bench) -> None:
    long_ago = NOW_MS - 500_000
    known = await bench.refusal(signed(METHOD, BODY, issued_at_ms=long_ago))
    unknown = await bench.refusal(signed(METHOD, BODY, issued_at_ms=long_ago, caller="device-9"))
    assert known.to_status("d") == unknown.to_status("d")


async def test_the_published_key_that_stands_in_for_unknown_callers_opens_nothing(bench: Bench) -> None:
    published = SigningKey(bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60"))
    error = await bench.refusal(signed(METHOD, BODY, caller="device-9", key=published))
    assert error.reason == "BAD_SIGNATURE"


async def test_each_of_a_callers_keys_is_accepted(bench: Bench) -> None:
    bench.directory.keys["device-1"] = (OTHER_KEY.verify_key.encode(), KEY.verify_key.encode())
    assert await bench.verifier.verify(METHOD, signed(METHOD, BODY), BODY) == "device-1"
    second = signed(METHOD, BODY, key=OTHER_KEY)
    assert await bench.verifier.verify(METHOD, second, BODY) == "device-1"


async def test_a_caller_learns_why_it_is_turned_away_only_after_it_proved_itself(bench: Bench) -> None:
    bench.directory.refusals["device-1"] = ServiceError(
        grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED", "cut off"
    )
    assert (await bench.refusal(signed(METHOD, BODY))).reason == "DEVICE_REVOKED"
    assert (await bench.refusal(signed(METHOD, BODY, key=OTHER_KEY))).reason == "BAD_SIGNATURE"


async def test_only_a_request_that_is_let_in_uses_its_nonce(bench: Bench) -> None:
    await bench.refusal(signed(METHOD, BODY, key=OTHER_KEY))
    await bench.refusal(signed(METHOD, BODY), BODY + b"x")
    await bench.refusal(signed(METHOD, BODY, issued_at_ms=NOW_MS - 200_000))
    await bench.refusal(signed(METHOD, BODY)[:-1])
    bench.directory.refusals["device-1"] = ServiceError(
        grpc.StatusCode.PERMISSION_DENIED, "DEVICE_REVOKED", "cut off"
    )
    await bench.refusal(signed(METHOD, BODY))
    assert bench.ledger.uses == []


async def test_the_version_comes_before_the_signature(bench: Bench) -> None:
    metadata = (("sealwork-protocol", "2"), *signed(METHOD, BODY)[1:])
    assert (await bench.refusal(metadata)).reason == "UNSUPPORTED_PROTOCOL_VERSION"
