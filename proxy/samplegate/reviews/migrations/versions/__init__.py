"""One file a step. A step that was released is not changed: the next one is added."""
