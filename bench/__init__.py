"""Benchmarks: `make bench`. Not part of the tests; a figure lives here, never in a test.

`python -m bench` runs every family and `--write` keeps the tables in RESULTS.md; `--only policies`
runs one. Each family declares its forms in a table and runs all of them, in turn, in each round.
Programs of their own: `bench.clients` (a chain beside 100 stream clients), `bench.fanout` (1,000
of them, against others' servers) and `bench.memory`.
"""
