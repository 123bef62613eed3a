"""What a check needs of a hub: its profile and settings, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from veen_core.status import Status

MOST_WORK: Final = 14
"""Difficulty of the work that is done for each message: some thousand of them in a run, 30 ms each."""


def _asks_too_much(status: Status) -> str | None:
    if status.pow_difficulty <= MOST_WORK:
        return None
    return (
        f"this hub asks for proof of work of difficulty {status.pow_difficulty} with each message, and the "
        f"selftest brings {MOST_WORK} at most: lower pow.difficulty for the run"
    )


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class Setup:
    """A kind of hub: how to make one, and why one that is already there will not do."""

    name: str
    profile: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As in hub.yaml."""
    unfit: Callable[[Status], str | None] = _asks_too_much


def _has_no_epochs(status: Status) -> str | None:
    if not status.profile.epoch_sec:
        return "it takes a hub whose profile has epochs (rotating)"
    return _asks_too_much(status)


def _asks_no_work(status: Status) -> str | None:
    return _asks_too_much(status) if status.pow_difficulty else "it takes a hub that asks for proof of work"


PLAIN: Final = Setup(name="plain")
"""Gated, without epochs: as ``veen hub init`` makes it. Of a hub that is there, any that asks little work."""
ROTATING: Final = Setup(name="rotating", profile="rotating", unfit=_has_no_epochs)
POLICY = CLOCK = "veen-selftest"
"""The entry points of ``policy`` and ``clock``."""
TURNING: Final = Setup(name="turning", profile="rotating", settings={"clock": CLOCK}, unfit=_has_no_epochs)
"""Epochs of three seconds, by a clock that is fast; of a hub that is there, its own clock's."""
MOST_MESSAGES: Final = 2
STRICT: Final = Setup(
    name="strict",
    settings={
        "pow": {"difficulty": 6},
        "client_keys": {"max_msgs_per_client_id_per_label": MOST_MESSAGES},
        "policy": {"name": POLICY},
    },
    unfit=_asks_no_work,
)
"""Asks for work, bounds how often a client_id is used, and has a policy (SH1+ 5.2, KEX1+ 4.1, H6)."""
