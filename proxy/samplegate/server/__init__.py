"""What `samplegate serve` is made of besides HTTP and the gate: servers by name, reload, drain, and what a supervisor
is told.

It wires the edges and carries no MCP frame; what is allowed stands in the policy, and what a request gets is the gate's
to say.
"""
