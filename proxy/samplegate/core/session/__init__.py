"""A session and its parts: frames in, effects out. Begin with ``session.py``; the doors: ``pushes``, ``exchange``, ``urlerrors``, ``unasked``."""
