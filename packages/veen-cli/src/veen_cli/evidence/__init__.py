"""Evidence as files: what it is (``recognize``), what it says (``inspect``), whether it holds (``judge``).

``receipt``, ``proof``, ``checkpoint`` and ``consistency`` fetch it from a hub; ``verify`` judges any of it
together, without one.
"""
