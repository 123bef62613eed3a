"""Functions on rows: reader keys, opening messages, names of schemas, and the SQL functions."""
