"""The migrations of the PostgreSQL database; alembic runs them."""
