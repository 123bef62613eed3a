"""The stages of a message's way through a hub, in the order of the report."""

from __future__ import annotations

from typing import Final

STAGES: Final = (
    "HTTP", "decode", "verify", "sequence", "sign", "write", "sync", "answer",
    "hand over", "upkeep", "apply", "start", "timers",
)  # fmt: skip
HTTP, START, TIMERS, SEQUENCER_WAITS = "HTTP", "start", "timers", "waiting"
