"""Benchmarks: `python -m bench`. Not part of the tests; a figure lives here, never in a test."""
