"""What a connected worker has: its stream, its leases and its credit."""
