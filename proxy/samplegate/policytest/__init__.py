"""`samplegate test`: the cases of a ``*_test.yaml`` file run through the real gate in virtual time. Start reading at
``suite.py``."""
