"""`samplegate demo`: a server that asks, a client that cannot answer, and the gate between them. Only
``samplegate/cli`` starts it."""
