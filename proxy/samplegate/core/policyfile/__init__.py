"""From a policy's text to the structs of ``policy.py``, or every problem of it with its place. Begin with ``load.py``,
one level up."""
