"""The gate's way to people: opens reviews, waits for verdicts, and tells reviewers by webhook or command."""
