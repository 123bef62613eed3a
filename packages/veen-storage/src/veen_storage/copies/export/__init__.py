"""Exports: a range of one label as a folder that verifies without the hub (spec-1 §15, OP0.5, COMP0.1).

``veen_core.export`` declares what such a folder holds. ``write`` makes one, in the form of a portable set or
of chunk files (``sinks``). ``check`` verifies one: ``set_check`` and ``chunk_check`` read the two forms, and
``range_verifier`` verifies the entries and checkpoints they hold with core's ``LogVerifier``.
"""

from veen_core.export import Manifest
from veen_storage.copies.export.check import verify_export
from veen_storage.copies.export.range_verifier import VerifiedExport
from veen_storage.copies.export.write import export, export_window

__all__ = ["Manifest", "VerifiedExport", "export", "export_window", "verify_export"]
