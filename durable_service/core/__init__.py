"""The rules of a durable task, as pure functions: no I/O, no clock, no gRPC, no protobuf."""
