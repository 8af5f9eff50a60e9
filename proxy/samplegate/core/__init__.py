"""The pure part: values in, values out. No clock, no await, no I/O, no log, no global state."""
