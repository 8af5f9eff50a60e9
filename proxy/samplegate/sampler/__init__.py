"""The sampler: asks models for answers to sampling requests. ``client`` runs in the gate's process, ``worker`` in a
child process that alone imports litellm."""
