"""The hub log as a client sees it: accepted checkpoints, confirmations, evidence, and its tiles (P1, P2)."""

from veen_hub.client.hub_log.checkpoints import AcceptedCheckpoint, HubCheckpoints, load_policy
from veen_hub.client.hub_log.confirmations import CONFIRM_TIMEOUT_SEC, Confirmations
from veen_hub.client.hub_log.gathering import gather_evidence, gather_head
from veen_hub.client.hub_log.label_heads import (
    LabelHeads,
    NoHubCheckpointError,
    head_table,
    read_label_heads,
)
from veen_hub.client.hub_log.tile_reader import TileReader

__all__ = [
    "CONFIRM_TIMEOUT_SEC",
    "AcceptedCheckpoint",
    "Confirmations",
    "HubCheckpoints",
    "LabelHeads",
    "NoHubCheckpointError",
    "TileReader",
    "gather_evidence",
    "gather_head",
    "head_table",
    "load_policy",
    "read_label_heads",
]
