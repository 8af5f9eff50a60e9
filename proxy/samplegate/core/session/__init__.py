"""A session and its parts: frames in, effects out. Begin with ``session.py``; the doors: ``server_requests``,
``input_required``."""
