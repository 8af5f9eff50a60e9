"""Reviews: what a person is asked, what may come of it, and what is told of it outside. Values in, values out."""
