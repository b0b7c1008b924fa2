"""What tests need of the outside world: a bad network, real processes, and waiting without sleeping."""
