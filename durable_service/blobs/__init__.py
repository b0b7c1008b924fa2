"""Where bytes are kept: a port, its implementations and the suite that each of them passes."""
