"""Where limits are kept: accounts of this process in memory, and those that processes share in a file. No rule:
``policy/ledger.py`` has them."""
