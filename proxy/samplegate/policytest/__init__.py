"""`samplegate test`: runs the cases of a ``*_test.yaml`` file through the real gate in virtual time. Begin with
``suite.py``."""
