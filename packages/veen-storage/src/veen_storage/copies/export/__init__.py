"""Exports: a range of one label as a folder that verifies without the hub (spec-1 §15, OP0.5, COMP0.1).

``format`` says what lies in one, ``write`` makes one; ``check`` verifies one: its form by ``portable_set`` or
``chunks``, all that is in it by ``judge``.
"""

from veen_storage.copies.export.check import verify_export
from veen_storage.copies.export.format import Manifest
from veen_storage.copies.export.judge import Verified
from veen_storage.copies.export.write import export, export_window

__all__ = ["Manifest", "Verified", "export", "export_window", "verify_export"]
