"""The coordinator's signing gate, as its shards copy it (RESOLUTIONS P3, P9).

The coordinator numbers the changes of its gate. A shard ignores a state that is older than the one it has: a
message that was under way while the hub handed over must not open the shard again.
"""

from __future__ import annotations

import json
from typing import Any

from veen_hub.pipeline.signing_gate import SigningGate


def encode_gate(gate: SigningGate, *, has_ended: bool, highest_load: float = 0.0) -> bytes:
    """Return the state of the coordinator's gate; ``has_ended``: the hub has handed over.

    ``highest_load`` is that of all processes: every shard asks for the same proof of work (SH1+ 5.2).
    """
    state = {
        "change": gate.changes,
        "why": gate.closed,
        "final": gate.is_final,
        "elsewhere": gate.is_elsewhere,
        "ended": has_ended,
        "highest_load": round(highest_load, 3),
    }
    return json.dumps(state).encode()


class GateCopy:
    """A shard's gate, which follows the coordinator's."""

    def __init__(self, gate: SigningGate) -> None:
        self._gate = gate
        self._change = -1
        self.highest_load = 0.0
        """How full the fullest queue of all processes is, as the coordinator has told."""

    def take(self, body: bytes) -> bool:
        """Take over a state, unless it is older than this one; return whether the hub has handed over."""
        state: dict[str, Any] = json.loads(body)
        if state["change"] < self._change:
            return False
        self._change = state["change"]
        self.highest_load = state["highest_load"]
        if state["elsewhere"]:
            self._gate.write_elsewhere(state["why"])
        elif self._gate.is_elsewhere:
            self._gate.cancel_handover()
        if state["elsewhere"]:
            return bool(state["ended"])
        if state["final"]:
            self._gate.refuse(state["why"])
        elif state["why"] is not None:
            self._gate.wait(state["why"], state["why"])
        else:
            self._gate.open()
        return False
