"""What a device's stream tells the dispatch."""

from typing import Protocol, TypeVar

Seeker_contra = TypeVar("Seeker_contra", contravariant=True)


class WorkSeeker(Protocol[Seeker_contra]):
    """Implemented by the dispatch."""

    def seek(self, session: Seeker_contra) -> None:
        """The session may be able to take work now."""

    def forget(self, session: Seeker_contra) -> None:
        """The session takes no work for now."""
