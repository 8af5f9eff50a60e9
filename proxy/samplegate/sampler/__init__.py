"""The sampler: a model answers a sampling request. ``client`` is the side in the gate's process, ``worker`` the child
that alone imports litellm."""
