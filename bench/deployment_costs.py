"""What operations of a deployment cost, and who pays: the service, its database, or the load itself."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeploymentCost:
    """One operation by so many workers at a time.

    Attributes:
        rate: operations a second, the median of the rounds.
        service_cores: of all processes of the service together, and `busiest_cores` of the busiest of them.
        idle_cores: what nobody took.
        limit: what stands in the way of more.
    """

    deployment: str
    workers: int
    operation: str
    samples: int
    rate: float
    p50_ms: float
    p99_ms: float
    service_cores: float
    busiest_cores: float
    database_cores: float
    load_cores: float
    idle_cores: float
    limit: str
