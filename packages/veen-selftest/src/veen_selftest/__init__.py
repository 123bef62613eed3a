"""A hub judged from outside.

``suite`` names the suites and runs them, ``check`` says what a check is, ``fleet`` where hubs come from;
``core``, ``props``, ``fuzz``, ``crash`` and ``perf`` hold the checks; ``command`` is ``veen selftest``.
"""
