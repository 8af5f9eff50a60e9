"""Cases of ``*_test.yaml`` put to a policy. Begin with ``cases.py``, one level up."""
