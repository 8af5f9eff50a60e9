"""JSON from hostile bytes, read strictly. ``requests.py`` makes requests of it."""
