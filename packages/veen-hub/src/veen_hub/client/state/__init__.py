"""Durable client state: small records per hub, replaced atomically (RESYNC0.4)."""

from veen_hub.client.state.records import EpochsRecord, HeldTokens, LabelRecord, decode_record
from veen_hub.client.state.store import FileStateStore, MemoryStateStore, StateStore, update

__all__ = [
    "EpochsRecord",
    "FileStateStore",
    "HeldTokens",
    "LabelRecord",
    "MemoryStateStore",
    "StateStore",
    "decode_record",
    "update",
]
