"""The requirements of a check on its hub, as data: profile and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from veen_core.status import Status

MAX_POW_DIFFICULTY: Final = 14
"""Largest proof of work done per message: 30 ms each, for some thousand messages in a run."""


def _too_much_work(status: Status) -> str | None:
    if status.pow_difficulty <= MAX_POW_DIFFICULTY:
        return None
    return (
        f"the hub asks for proof of work of difficulty {status.pow_difficulty} per message, more than "
        f"{MAX_POW_DIFFICULTY}: lower pow.difficulty for the run"
    )


@dataclass(frozen=True, eq=False, slots=True, kw_only=True)
class HubSetup:
    """A kind of hub: its profile and settings, and a function that says why a running hub does not fit."""

    name: str
    profile: str = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings as in hub.yaml."""
    unfit: Callable[[Status], str | None] = _too_much_work
    """Returns why a hub with this status is not of this kind, or None."""


def _no_epochs(status: Status) -> str | None:
    if not status.profile.epoch_sec:
        return "needs a hub whose profile has epochs (rotating)"
    return _too_much_work(status)


def _no_work(status: Status) -> str | None:
    return _too_much_work(status) if status.pow_difficulty else "needs a hub that asks for proof of work"


PLAIN: Final = HubSetup(name="plain")
"""Gated and without epochs, as ``veen hub init`` makes it; any running hub that asks for little work."""
ROTATING: Final = HubSetup(name="rotating", profile="rotating", unfit=_no_epochs)
HUB_LOG: Final = HubSetup(name="hub-log", settings={"hub_log": {"max_entries": 1}})
"""Makes a hub checkpoint after every commit, so that checks need not wait for its cadence (P1)."""
POLICY = CLOCK = "veen-selftest"
"""Names of the entry points of ``hubs.policy`` and ``hubs.clock``."""
FAST_EPOCHS: Final = HubSetup(
    name="fast-epochs", profile="rotating", settings={"clock": CLOCK}, unfit=_no_epochs
)
"""Epochs of three seconds, by a fast clock; a running hub keeps its own clock."""
STRICT_MAX_MESSAGES: Final = 2
"""Messages that a STRICT hub accepts per client_id and label."""
STRICT: Final = HubSetup(
    name="strict",
    settings={
        "pow": {"difficulty": 6},
        "client_keys": {"max_msgs_per_client_id_per_label": STRICT_MAX_MESSAGES},
        "policy": {"name": POLICY},
    },
    unfit=_no_work,
)
"""Asks for proof of work, bounds the use of a client_id, and has a policy (SH1+ 5.2, KEX1+ 4.1, H6)."""
