"""From hostile bytes to a checked request. Begin with ``parse.py``."""
