"""The air-gap bridge (products-spec-1 §4, AGB0): imported events and the audit logs of both zones.

``records`` declares the records, ``exports`` folds bridge/online/log, ``imports`` folds bridge/offline/log,
``origins`` folds the events of an import stream. The three states are what a bridge resumes from and what
reconciliation compares (RESOLUTIONS P7, P8).
"""

from veen_overlays.bridge.exports import EXPORTS
from veen_overlays.bridge.imports import IMPORTS
from veen_overlays.bridge.origins import ORIGINS
from veen_overlays.bridge.records import (
    EnvelopedEvent,
    Exported,
    Imported,
    ImportedEvent,
    ImportFailed,
    ImportGap,
    ImportMapping,
    TargetRange,
)

__all__ = [
    "EXPORTS",
    "IMPORTS",
    "ORIGINS",
    "OVERLAYS",
    "EnvelopedEvent",
    "Exported",
    "ImportFailed",
    "ImportGap",
    "ImportMapping",
    "Imported",
    "ImportedEvent",
    "TargetRange",
]

OVERLAYS = (EXPORTS, IMPORTS, ORIGINS)
