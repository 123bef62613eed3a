"""One label: its verified log, the keys of its client_ids, its stored state, and evidence (§9)."""

from veen_hub.client.label.evidence import find_equivocation
from veen_hub.client.label.keyring import KeyRing
from veen_hub.client.label.label_log import LabelLog

__all__ = ["KeyRing", "LabelLog", "find_equivocation"]
