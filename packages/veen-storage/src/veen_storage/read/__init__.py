"""Reading a data directory: entries, proofs, attachments, and a directory another process has open."""
