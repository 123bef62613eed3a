"""Tests of a hub from outside, through its public API.

``runner`` runs suites of checks and reports; ``hubs`` starts hubs or talks to a running one; ``peers`` writes
messages and verifies logs. ``core``, ``props``, ``fuzz``, ``crash`` and ``perf`` hold the checks; ``command``
is ``veen selftest``.
"""
