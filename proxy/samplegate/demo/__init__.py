"""What `samplegate demo` runs: a server that asks, a client that cannot answer, and the gate between them. Nothing else
imports it."""
