"""Results of queries: digest, coverage, evidence, and the file that carries them (query-api §5)."""
