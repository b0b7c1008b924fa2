"""The server's half of a long-lived stream: lanes, liveness, frame errors, fences, drain."""
