"""What the gate leaves behind: the decision log, metrics and events. Nothing here decides anything."""
