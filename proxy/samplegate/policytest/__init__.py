"""`samplegate test`: the cases of a ``*_test.yaml`` file, played on the real gate over virtual time. Begin with ``suite.py``."""
