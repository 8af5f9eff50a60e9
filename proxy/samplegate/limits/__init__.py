"""Accounts of limits: in memory for this process, in a file if processes share them. Their arithmetic is in
``policy/ledger.py``."""
