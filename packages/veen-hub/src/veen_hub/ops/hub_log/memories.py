"""Memories: what others remember of this hub's log, compared before the hub signs anything (RESOLUTIONS P3).

A hub that starts from an older copy of its data directory would give places in its log away twice. Every
configured memory is therefore asked at start:

| memory | what it remembers | module |
|---|---|---|
| a witness | the tree that it cosigned last | ``witnessing`` |
| a heads file | the newest hub checkpoint that may have left the hub | ``heads_file`` |
| a server with a copy of the log | its newest hub checkpoint | ``memory_sources`` |
| the anchor ledger | the newest anchored root of every label | ``memory_sources`` |

The signing gate opens when every memory was asked once, and as many have answered as
``hub_log.memories.required`` says. It closes for good when one of them remembers what this hub does not have,
at start or later. A memory that does not answer is asked again, with growing pauses.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from typing import Final, Protocol

from veen_core.errors import ConfigError, VeenError
from veen_hub.ops.logs import LOGGER, log
from veen_hub.pipeline.signing_gate import SigningGate
from veen_storage import StoredHubLog

FIRST_PAUSE_SEC: Final = 0.5
MAX_PAUSE_SEC: Final = 30.0
"""Pauses before a memory that did not answer is asked again."""
WHAT_HELPS: Final = (
    "stop the hub and start it from the newest copy of its data directory (`veen hub clone --with-keys` "
    "makes a copy); if there is none, keep this directory as evidence and create a new hub with "
    "`veen hub fork`"
)


class SilentMemoryError(VeenError):
    """A memory did not answer, or not in a way that can be used; the hub asks again."""


class ClaimedError(SilentMemoryError):
    """Another process of this hub may be signing: the hub waits, whatever its other memories say."""


class ContradictedError(VeenError):
    """A memory holds what this hub does not have: the hub must not sign."""

    action = WHAT_HELPS


def check_contained(hub_log: StoredHubLog, size: int, root: bytes, memory: str) -> None:
    """Raise ``ContradictedError`` unless this hub's log starts with a tree of this size and root."""
    if size > hub_log.size:
        raise behind_error(memory, size, hub_log.size)
    if hub_log.root_at(size) != root:
        raise forked_error(memory, size)


def behind_error(memory: str, remembered: int, size: int) -> ContradictedError:
    """Return the error for a memory of a longer hub log."""
    return ContradictedError(
        f"the hub is behind: {memory} remembers a hub log of size {remembered} and this one has size {size}, "
        f"{remembered - size} less"
    )


def forked_error(memory: str, size: int) -> ContradictedError:
    """Return the error for a memory of another tree."""
    return ContradictedError(
        f"the hub log has two histories: {memory} remembers another root at size {size} than this one"
    )


class PolledMemory(Protocol):
    """Something that the hub asks and compares its log with."""

    name: str

    async def compare(self) -> None:
        """Return if the memory answers and agrees.

        Raise ``ContradictedError`` if it does not agree, ``SilentMemoryError`` if it does not answer.
        """
        ...


class Memories:
    """Which memories have answered; opens and closes the signing gate. Used from the event loop only."""

    def __init__(self, gate: SigningGate, names: Sequence[str], required: int) -> None:
        if required > max(1, len(names)):  # 1 is the default, and allowed without a memory
            raise ConfigError(
                f"hub_log.memories.required: {required} memories must answer, but {len(names)} can be asked"
                f"{': ' if names else ''}{', '.join(names)}",
                action=None if names else "configure memories (hub_log.witnesses, hub_log.memories)",
            )
        self._gate = gate
        self.names = tuple(names)
        self._required = required if names else 0
        self._agree: set[str] = set()
        """Memories that have answered since the start; a later silence does not count."""
        self._silent: dict[str, str] = {}
        """Memories that did not answer when they were asked last, and why."""
        self._claimed: set[str] = set()
        """Memories that say that another process of this hub may be signing."""
        if self._required:
            self._wait()

    def log_start(self) -> None:
        """Log once which memories the hub is compared with, or that it has none."""
        if self.names:
            log(logging.INFO, "memories", memories=list(self.names), required=self._required)
            return
        log(
            logging.WARNING,
            "no_memory",
            note="a hub that starts from an old copy of its data directory signs a second history",
            action="set hub_log.witnesses or hub_log.memories in hub.yaml",
        )

    def is_silent(self, name: str) -> bool:
        """Return whether a memory did not answer when it was asked last."""
        return name in self._silent

    def agrees(self, name: str) -> None:
        """Record that a memory answered and remembers nothing that this hub does not have."""
        if (why := self._silent.pop(name, None)) is not None:
            log(logging.INFO, "memory_answers_again", memory=name, before=why)
        self._claimed.discard(name)
        if name not in self._agree:
            self._agree.add(name)
            self._open_if_enough()

    def silent(self, name: str, error: SilentMemoryError) -> None:
        """Record that a memory did not answer; the same reason is logged once."""
        why = str(error)
        first = name not in self._silent and name not in self._agree
        if self._silent.get(name) != why:
            log(logging.WARNING, "memory_silent", memory=name, error=why)
        self._silent[name] = why
        if isinstance(error, ClaimedError):
            self._claimed.add(name)
        if first or not self._has_enough():
            self._open_if_enough()

    def contradicted(self, name: str, error: ContradictedError) -> None:
        """Record that a memory holds what this hub does not have: nothing is signed from now on."""
        first = not self._gate.is_final
        self._gate.refuse(str(error))
        if first:
            log(logging.CRITICAL, "signing_stopped", memory=name, error=error.message, action=error.action)

    @property
    def contradiction_found(self) -> bool:
        """Whether a memory has contradicted this hub, so that it signs nothing any more."""
        return self._gate.is_final and not self._gate.is_elsewhere

    def _has_enough(self) -> bool:
        if self._claimed:
            return False
        asked = len(self._agree | self._silent.keys())
        return not self._required or (asked == len(self.names) and len(self._agree) >= self._required)

    def _open_if_enough(self) -> None:
        if self._has_enough():
            self._gate.open()
        else:
            self._wait()

    def _wait(self) -> None:
        """Close the gate until enough memories have answered; only the operator sees their addresses."""
        asked = len(self._agree | self._silent.keys())
        why = f"{len(self._agree)} of {self._required} required memories have answered (RESOLUTIONS P3)"
        if self._claimed:
            why = "another process of this hub may be signing (RESOLUTIONS P3)"
        elif asked < len(self.names):
            why = f"{asked} of {len(self.names)} memories have been asked (RESOLUTIONS P3)"
        reasons = "; ".join(f"{name}: {reason}" for name, reason in self._silent.items())
        self._gate.wait(why, f"{why}{': ' if reasons else ''}{reasons}")


class Poll:
    """Compares one memory at start, again until it answers, and then after hub checkpoints."""

    def __init__(self, memory: PolledMemory, memories: Memories, *, min_pause_sec: float | None) -> None:
        """``min_pause_sec``: shortest pause between two comparisons; None if the first answer is enough."""
        self._memory = memory
        self._memories = memories
        self._min_pause_sec = min_pause_sec
        self._grown = asyncio.Event()

    def wake(self) -> None:
        """Ask for another comparison, because the hub log has grown."""
        self._grown.set()

    async def run(self) -> None:
        """Compare until the memory contradicts the hub, or the task is cancelled."""
        pause, name = FIRST_PAUSE_SEC, self._memory.name
        while True:
            self._grown.clear()
            try:
                await self._memory.compare()
            except SilentMemoryError as exc:
                self._memories.silent(name, exc)
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - spreads requests
                pause = min(2 * pause, MAX_PAUSE_SEC)
                continue
            except ContradictedError as exc:
                self._memories.contradicted(name, exc)
                return
            except Exception as exc:  # noqa: BLE001 - logged; a bug must not count as an answer
                LOGGER.exception("memory_failed", extra={"fields": {"memory": name}})
                self._memories.silent(name, SilentMemoryError(f"internal error: {type(exc).__name__}"))
                await asyncio.sleep(MAX_PAUSE_SEC)
                continue
            pause = FIRST_PAUSE_SEC
            self._memories.agrees(name)
            if self._min_pause_sec is None:
                return
            await asyncio.sleep(self._min_pause_sec)
            await self._grown.wait()
