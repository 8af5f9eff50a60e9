"""Benchmarks: the gate in short interleaved laps beside the floor, the bare server and peers. `python -m bench` prints
the table."""
