from relay_service.core.churn import Churn, record_lapse


def lapses(*instants: int) -> tuple[Churn, list[bool]]:
    churn, told = Churn(), []
    for instant in instants:
        churn, due = record_lapse(churn, instant)
        told.append(due)
    return churn, told


def test_the_sixth_lapse_in_five_minutes_is_reported() -> None:
    churn, told = lapses(0, 60_000, 120_000, 180_000, 240_000, 300_000)
    assert told == [False] * 5 + [True]
    assert (len(churn.lapses_at_ms), churn.reported_at_ms) == (6, 300_000)


def test_a_lapse_older_than_five_minutes_does_not_count() -> None:
    churn, told = lapses(0, 60_000, 120_000, 180_000, 240_000, 300_001)
    assert told == [False] * 6
    assert churn.lapses_at_ms == (60_000, 120_000, 180_000, 240_000, 300_001)


def test_the_next_report_waits_an_hour() -> None:
    early = (0, 0, 0, 0, 0, 0)
    assert lapses(*early, 1, 2)[1] == [False] * 5 + [True, False, False]
    late = (3_599_999,) * 6
    assert lapses(*early, *late)[1][6:] == [False] * 6
    hour = (3_600_000,) * 6
    assert lapses(*early, *hour)[1][6:] == [False] * 5 + [True]
