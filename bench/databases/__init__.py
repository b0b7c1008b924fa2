"""Measures the durable service on databases that several processes of it share, and says what limits each."""

# For its settings of gRPC, which have to be there before gRPC is first imported.
import bench.our_relay  # noqa: F401
