import pytest
from structlog.testing import capture_logs

from relay_service.core.projection import Projection
from relay_service.projection import ProjectionSource


class TestSource:
    def test_it_is_empty_to_begin_with(self) -> None:
        source = ProjectionSource()

        assert source.current == Projection()
        assert (source.broken, source.problem) == (False, None)

    def test_listeners_hear_of_a_change_when_it_is_in_force(self) -> None:
        source = ProjectionSource()
        seen: list[tuple[Projection, Projection, Projection]] = []
        source.listen(lambda old, new: seen.append((old, new, source.current)))

        source.replace(Projection(revoked=(("a", "s"),)))

        new = Projection(revoked=(("a", "s"),), revision=1)
        assert seen == [(Projection(), new, new)]

    def test_a_listener_that_stopped_hears_nothing(self) -> None:
        source = ProjectionSource()
        seen: list[int] = []
        stop = source.listen(lambda _old, new: seen.append(new.revision))
        source.listen(lambda _old, new: seen.append(-new.revision))

        stop()
        source.replace(Projection())

        assert seen == [-1]

    @pytest.mark.parametrize(("offered", "revision"), [(0, 6), (5, 6), (6, 6), (9, 9)])
    def test_revisions_only_grow(self, offered: int, revision: int) -> None:
        source = ProjectionSource(Projection(revision=5))

        source.replace(Projection(revision=offered))

        assert source.current.revision == revision

    def test_a_listener_that_fails_keeps_nothing_from_the_others(self) -> None:
        source = ProjectionSource()
        seen: list[int] = []

        def fail(_old: Projection, _new: Projection) -> None:
            raise RuntimeError

        source.listen(fail)
        source.listen(lambda _old, new: seen.append(new.revision))
        with capture_logs() as events:
            source.replace(Projection())

        assert seen == [1]
        assert [event["event"] for event in events] == ["projection_listener_failed"]
