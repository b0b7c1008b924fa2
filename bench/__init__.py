"""Benchmarks: ratios of interleaved runs, printed as tables and written as JSON; never a test's verdict."""
