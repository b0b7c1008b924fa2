"""Pure rules of the relay: no input or output, no clock, no transport."""
