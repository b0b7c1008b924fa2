"""What every workload is given."""

from dataclasses import dataclass

from bench.our_relay import plan
from bench.peer_relay.installation import Installer
from bench.session import Session


@dataclass(frozen=True, slots=True)
class Bench:
    """One run of the bench; without an installer the published relay is left out.

    Attributes:
        open_files: how many this process may open, and each that it starts.
    """

    session: Session
    effort: plan.Effort
    installer: Installer | None
    open_files: int
