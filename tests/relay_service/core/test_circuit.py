from relay_service.core.circuit import Circuit


def opened(at: float = 10.0) -> Circuit:
    circuit = Circuit()
    for _ in range(5):
        assert circuit.admit(at)
        circuit.failed(at)
    assert circuit.is_open
    return circuit


def test_the_fifth_failure_in_a_row_opens() -> None:
    circuit = Circuit()
    assert [circuit.failed(1.0) for _ in range(5)] == [False, False, False, False, True]
    assert not circuit.admit(1.0)
    assert circuit.wait_seconds(2.5) == 3.5


def test_a_success_starts_the_count_again() -> None:
    circuit = Circuit()
    for _ in range(4):
        circuit.failed(1.0)
    assert circuit.succeeded() is False
    assert [circuit.failed(1.0) for _ in range(4)] == [False] * 4
    assert circuit.admit(1.0)


def test_nothing_is_let_through_for_five_seconds_and_then_one_probe() -> None:
    circuit = opened(10.0)
    assert not circuit.admit(14.999)
    assert circuit.would_admit(15.0)
    assert circuit.admit(15.0)
    assert not circuit.would_admit(15.0)
    assert not circuit.admit(20.0)


def test_a_probe_that_is_answered_closes() -> None:
    circuit = opened(10.0)
    assert circuit.admit(15.0)
    assert circuit.succeeded() is True
    assert not circuit.is_open
    assert all(circuit.admit(15.0) for _ in range(3))


def test_a_probe_that_fails_opens_for_another_five_seconds() -> None:
    circuit = opened(10.0)
    assert circuit.admit(15.0)
    assert circuit.failed(16.0) is True
    assert not circuit.admit(20.9)
    assert circuit.admit(21.0)


def test_a_straggler_that_fails_does_not_prolong() -> None:
    circuit = opened(10.0)
    assert circuit.failed(12.0) is False
    assert circuit.admit(15.0)


def test_a_probe_that_is_given_up_makes_way_for_another() -> None:
    circuit = opened(10.0)
    assert circuit.admit(15.0)
    circuit.given_up()
    assert circuit.admit(15.0)
