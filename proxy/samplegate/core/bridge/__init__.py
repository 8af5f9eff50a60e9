"""Between the eras: what looks like a session to both sides, with a session of the other era inside. Begin with
``legacy_client.py``."""
