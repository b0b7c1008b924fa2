"""Measures the durable service: operations over gRPC, by store, by workers, and by tasks that are there."""

# For its settings of gRPC, which have to be there before gRPC is first imported.
import bench.our_relay  # noqa: F401
