"""Where reviews are kept: tables and transactions through SQLAlchemy Core. It decides nothing: ``core.review.states``
says what may follow what."""
