"""Meaning over decrypted logs.

Declarative schemas, folds as monoids and the summary tree; every overlay of the
profiles. Pure, except ``veen_overlays.live``, the drivers that follow a log.
Nothing is built yet.
"""
