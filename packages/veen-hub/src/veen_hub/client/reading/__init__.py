"""Reading: verified entries of a label, opened messages, and following (§9 Read)."""
