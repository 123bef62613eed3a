"""What a check is handed: hubs to ask, writers of its own, and chance that the seed decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from veen_core.hashing import H
from veen_selftest.hubs.fleet import Fleet
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Skip
from veen_selftest.runner.hub_setup import PLAIN, Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much of what could go on for ever."""

    fuzz_requests: int = 2_000
    fuzz_seconds: float = 60.0
    crash_rounds: int = 10
    patience: float = 5.0
    """Seconds that a check may wait for time to pass."""
    quick: bool = True
    """Of the figures: a few seconds each."""
    history: int | None = None
    """Of the figures: entries in the long label, if not as many as ``quick`` says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that was measured, and what it should be."""

    name: str
    value: float
    unit: str
    target: str
    ok: bool
    about: str


def _silent(_done: int, _of: int) -> None:
    pass


@dataclass(slots=True, kw_only=True)
class Bench:
    """For one check; its name is in every stream and key, so that checks do not meet."""

    fleet: Fleet
    name: str
    seed: int
    effort: Effort = field(default_factory=Effort)
    progress: Callable[[int, int], None] = _silent
    figures: list[Figure] = field(default_factory=list)
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(f"{self.seed}/{self.name}")  # noqa: S311 - to be repeated, not secret

    @property
    def secret(self) -> bytes:
        """What keys are made from."""
        return H(f"{self.fleet.run}/{self.seed}/{self.name}".encode())

    def hub(self, setup: Setup = PLAIN) -> Hub:
        return self.fleet.hub(setup)

    def free_hub(self) -> Hub:
        """One that asks for no work: load, and requests that are malformed, bring none."""
        hub = self.hub()
        if hub.known.pow_difficulty:
            raise Skip("it takes a hub that asks for no proof of work")
        return hub

    def own(self, setup: Setup = PLAIN) -> OwnHub:
        return self.fleet.own(setup)

    def stranger(self, hub: Hub, who: str = "alice", *, on: str = "log", epoch: int | None = None) -> Writer:
        """Somebody without a token, on a stream of this check."""
        return Writer(hub, self.secret, who, f"{self.fleet.run}/{self.seed}/{self.name}/{on}", epoch)

    def writer(self, hub: Hub, who: str = "alice", *, on: str = "log", epoch: int | None = None) -> Writer:
        """Somebody who may write, with a token if the hub asks for one."""
        made = self.stranger(hub, who, on=on, epoch=epoch)
        return made.authorized() if hub.known.gating else made
