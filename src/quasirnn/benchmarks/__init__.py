"""Benchmarks: each file has what is timed, its summary, its tables and its plot. Results are checked before timing."""
