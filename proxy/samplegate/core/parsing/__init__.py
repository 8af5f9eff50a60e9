"""JSON from hostile bytes, read strictly. The request that is made of it is in ``requests.py``."""
