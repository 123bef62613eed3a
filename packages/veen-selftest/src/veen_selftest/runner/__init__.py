"""Running checks: the check and its context, the suites, and the report."""

from veen_selftest.runner.check import Check, ClauseViolation, Skip, require, require_equal, require_one

__all__ = ["Check", "ClauseViolation", "Skip", "require", "require_equal", "require_one"]
