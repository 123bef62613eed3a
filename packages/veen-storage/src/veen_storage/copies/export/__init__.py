"""Exports: folders that verify without the hub (spec-1 §15, OP0.5, COMP0.1).

An export holds a range of one label, or a whole hub: every label and the hub log (``hub_export``).

``veen_core.export`` and ``veen_core.hub_export`` declare what such a folder holds. ``write`` makes one, in
the form of a portable set or of chunk files (``sinks``). ``check`` verifies one: ``set_check`` and
``chunk_check`` read the two forms, and ``range_verifier`` verifies the entries and checkpoints they hold with
core's ``LogVerifier``. ``hub_head`` ties an export to a hub checkpoint. ``hub_check`` verifies an export of a
whole hub.
"""

from veen_core.export import Manifest
from veen_core.hub_export import HubManifest
from veen_storage.copies.export.check import verify_export
from veen_storage.copies.export.hub_check import VerifiedHubExport, verify_hub_export
from veen_storage.copies.export.hub_export import export_hub
from veen_storage.copies.export.range_verifier import VerifiedExport
from veen_storage.copies.export.write import export, export_window

__all__ = [
    "HubManifest",
    "Manifest",
    "VerifiedExport",
    "VerifiedHubExport",
    "export",
    "export_hub",
    "export_window",
    "verify_export",
    "verify_hub_export",
]
