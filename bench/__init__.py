"""The benchmarks: the gate in short interleaved laps beside the floor, the bare server and a peer. `python -m bench`
prints the table."""
