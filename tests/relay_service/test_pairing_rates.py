"""How often one peer may start a pairing, and who counts as one peer."""

import pytest

from relay_service.pairing_rates import PairingRates
from relay_service.planes.pairing_calls import peer_address


class Time:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


def test_a_minute_of_starts_at_once_and_then_one_by_one() -> None:
    time = Time()
    rates = PairingRates(time, 10)
    assert [rates.take("a") for _ in range(11)] == [0] * 10 + [6_000]
    time.seconds += 3
    assert rates.take("a") == 3_000
    time.seconds += 3
    assert rates.take("a") == 0
    assert rates.take("a") == 6_000
    time.seconds += 60
    assert [rates.take("a") for _ in range(11)] == [0] * 10 + [6_000]


def test_being_refused_costs_nothing() -> None:
    time = Time()
    rates = PairingRates(time, 1)
    assert rates.take("a") == 0
    for _ in range(100):
        assert rates.take("a") > 0
    time.seconds += 60
    assert rates.take("a") == 0


def test_peers_do_not_share() -> None:
    rates = PairingRates(Time(), 1)
    assert [rates.take(peer) for peer in ("a", "b", "a", "b")] == [0, 0, 60_000, 60_000]


def test_the_memory_is_bounded() -> None:
    rates = PairingRates(Time(), 1, peers=100)
    for number in range(10_000):
        rates.take(str(number))
    assert len(rates) == 100
    assert rates.take("9999") > 0


def test_quiet_peers_are_forgotten() -> None:
    time = Time()
    rates = PairingRates(time, 10)
    for number in range(100):
        rates.take(str(number))
    time.seconds += 60
    for _ in range(60):
        rates.take("only")
    assert len(rates) == 1


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:127.0.0.1:53412", "127.0.0.1"),
        ("ipv6:%5B::1%5D:53412", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:53412", "2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2:ffff:4:5:6%5D:1", "2001:db8:1:2::/64"),
        ("ipv6:[fe80::1%25eth0]:53412", "fe80::/64"),
        ("ipv6:[::ffff:192.0.2.7]:53412", "192.0.2.7"),
        ("unix:", "unix"),
        ("unix:/run/relay.sock", "unix"),
        ("unix-abstract:name", "unix-abstract"),
        ("", ""),
        ("ipv4:nonsense", ""),
    ],
)
def test_a_peer_is_an_address_without_its_port(peer: str, address: str) -> None:
    assert peer_address(peer) == address
