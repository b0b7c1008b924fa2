"""The gRPC surface, one file a service: convert, call, convert."""
