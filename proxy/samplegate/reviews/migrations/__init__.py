"""The alembic migrations of the review tables. alembic runs ``env.py``; ``versions/`` has one file per migration."""
