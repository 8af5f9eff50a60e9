"""What a rule may ask about a request, and whether it holds. Begin with ``match.py``; ``decide.py``, one level up,
walks the rules."""
