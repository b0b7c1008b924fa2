"""Where routing state is kept: the port, its implementations and the suite that they all pass."""
