"""The Server Drive Recorder (products-spec-1 §3, SDR0): events, migrations and audits, and who caused them.

``records`` declares the records, ``attribution`` says which events a principal has written, ``actors`` folds
events by actor, ``audits`` folds migrations and audits of queries.
"""

from veen_overlays.recorder.actors import ACTORS
from veen_overlays.recorder.attribution import Attribution
from veen_overlays.recorder.audits import AUDITS, MIGRATIONS
from veen_overlays.recorder.records import KeyContinuity, MigrationRecord, QueryAudit, RecordEvent

__all__ = [
    "ACTORS",
    "AUDITS",
    "MIGRATIONS",
    "OVERLAYS",
    "Attribution",
    "KeyContinuity",
    "MigrationRecord",
    "QueryAudit",
    "RecordEvent",
]

OVERLAYS = (ACTORS, MIGRATIONS, AUDITS)
