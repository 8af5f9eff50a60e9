"""Pure. What CI systems give and read: the ID of a run, JUnit files, annotations and step summaries."""
