"""The live mirror: follows streams of one hub and copies their events to another (ANCHOR0.3, spec-3 §10).

``source`` follows a stream over all its labels, ``progress`` keeps the position, ``stream_mirror`` runs one
stream, ``service`` runs all of them and reconnects, ``metrics`` and ``probes`` show them, and ``check``
compares mirror records with the source's receipts (spec-3 10.4).
"""
