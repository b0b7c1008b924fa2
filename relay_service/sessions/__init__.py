"""What a connected device or site has: a reader, two outbound lanes, timers."""
