"""Running checks: suites, their context and the report."""
