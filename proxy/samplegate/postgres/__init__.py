"""One PostgreSQL database for many gates: its URL, connections with bounded transactions, and its schema.

A transaction never outlives its deadline, whatever the server, the network or a pooler does. Everything works behind
PgBouncer in transaction mode: no session settings, no LISTEN, no session locks and no prepared statements.
"""
