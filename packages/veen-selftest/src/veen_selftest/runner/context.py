"""The context of a check: hubs to ask, writers of its own, and random numbers from the seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from veen_core.hashing import H
from veen_hub.load import ClientRates
from veen_selftest.hubs.fleet import Fleet
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.hubs.own_hub import OwnHub
from veen_selftest.peers.writer import Writer
from veen_selftest.runner.check import Skip
from veen_selftest.runner.hub_setup import PLAIN, HubSetup
from veen_selftest.runner.load_profile import HubProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options that bound a run: numbers of requests and kills, times, sizes."""

    fuzz_requests: int = 2_000
    """Requests per check of the suite ``fuzz``."""
    fuzz_seconds: float = 60.0
    """Longest time per check of the suite ``fuzz``."""
    crash_rounds: int = 10
    """Kills per check of the suites ``crash`` and ``trust``."""
    max_wait: float = 5.0
    """Longest time that a check may wait for an expiry, an epoch or the hub log, in seconds."""
    replica_wait: float = 60.0
    """Longest time that a check of the suite ``dr`` may wait for a replica, in seconds."""
    quick: bool = True
    """Whether the suite ``perf`` uses small sizes: a few seconds per figure."""
    history: int | None = None
    """Entries in the long label of the suite ``perf``; None: ``quick`` decides."""
    flame_graph: Path = Path("veen-flame-graph.svg")
    """File for the flame graph of a profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A measured number and its target."""

    name: str
    value: float
    unit: str
    target: str
    ok: bool
    about: str


def _ignore_progress(_done: int, _of: int) -> None:
    pass


@dataclass(slots=True, kw_only=True)
class CheckContext:
    """The context of one check. Its streams and keys contain its name, so that checks do not interfere."""

    fleet: Fleet
    name: str
    seed: int
    options: RunOptions = field(default_factory=RunOptions)
    progress: Callable[[int, int], None] = _ignore_progress
    figures: list[Figure] = field(default_factory=list)
    clients: list[ClientRates] = field(default_factory=list)
    """Rates of several clients of the hub; they have no target."""
    profiles: list[HubProfile] = field(default_factory=list)
    """Where the hub's processor time went, under several loads."""
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.name}")  # noqa: S311 - repeatable, not secret

    @property
    def secret(self) -> bytes:
        """The seed of this check's keys."""
        return H(f"{self.fleet.run}/{self.seed}/{self.name}".encode())

    def stream_name(self, on: str) -> str:
        """Return the name of one of this check's streams."""
        return f"{self.fleet.run}/{self.seed}/{self.name}/{on}"

    def hub(self, setup: HubSetup = PLAIN) -> HttpHub:
        """Return a running hub that other checks use too."""
        return self.fleet.hub(setup)

    def hub_without_pow(self) -> HttpHub:
        """Return a hub that asks for no proof of work: load and malformed requests carry none."""
        hub = self.hub()
        if hub.known.pow_difficulty:
            raise Skip("needs a hub that asks for no proof of work")
        return hub

    def own_hub(self, setup: HubSetup = PLAIN) -> OwnHub:
        """Return a hub for this check alone, not started yet."""
        return self.fleet.own_hub(setup)

    def writer_without_token(
        self, hub: HttpHub, who: str = "alice", *, on: str = "log", epoch: int | None = None
    ) -> Writer:
        """Return a writer without a token, on a stream of this check."""
        return Writer(hub, self.secret, who, self.stream_name(on), epoch)

    def writer(
        self, hub: HttpHub, who: str = "alice", *, on: str = "log", epoch: int | None = None
    ) -> Writer:
        """Return a writer that the hub admits, with a token if the hub is gated."""
        made = self.writer_without_token(hub, who, on=on, epoch=epoch)
        return made.authorized() if hub.known.gating else made
