"""Checkpoints cover every event, and a covered event never changes (SDR0 3.2.4, I2; RESOLUTIONS P1)."""

from __future__ import annotations

from typing import Final

from veen_selftest.recorder.site import AUTH, ORDERS, logins, orders, recorder_site
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext


def _stability(context: CheckContext) -> None:
    """A checkpoint covers every event of every stream; each covered entry verifies and never changes."""
    with recorder_site(context) as site:
        site.emit("door", logins(7))
        site.emit("shop", orders(6))
        first = site.checkpoint("first")
        heads = {each["stream"]: each["last_seq"] for each in first["streams"]}
        require_equal((heads[AUTH], heads[ORDERS]), (7, 6), "last entries in the checkpoint")
        required = first["hub_public"] and first["profile_id"] and first["log_root"]
        require(required, "a field of the checkpoint is empty (3.2.4)")
        site.emit("shop", orders(9))
        code, found = site.admin("validate", "first", "--full")
        require_equal((code, found["faults"]), (0, []), "validation after more events")
        require_equal(sum(each["read"] for each in found["findings"]), 13, "entries read again")
        covered = site.replay(ORDERS, "--checkpoint", "first")
        require_equal(covered[-1]["rows"], 6, "entries of a replay up to the checkpoint")
        site.checkpoint("second")
        code, window = site.admin("safe-window", "second", "--after", _file(first))
        span = next(each for each in window["streams"] if each["stream"] == ORDERS)
        require_equal((span["from_seq"], span["to_seq"]), (7, 15), "the window between two checkpoints")


def _file(made: dict[str, object]) -> str:
    return str(made["file"])


CHECKS: Final = (Check("recorder.stability", "SDR0 3.2.4, I2, P1", _stability),)
