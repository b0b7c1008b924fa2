"""The gRPC surface, one file a plane: convert, call, convert."""
