"""How the tables of reviews came to be, step by step, for alembic. ``env.py`` is run by it; ``versions/`` holds one
file a step, never changed."""
