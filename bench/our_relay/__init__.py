"""Starts this project's relay as a process and drives it with the work that the published relay gets."""

import os

# Before gRPC is first imported: servers are started while its threads are running, and it would log a line
# about each that it cannot follow into the new process. None of them uses what it would carry over.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# A line about each of thousands of connections whose server is being stopped would hide the figures.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
