"""Checks of receipts that clients have: the hub log covers each of them, and its heads extend them (P1).

Once a receipt is below a head, it needs no further check: later heads extend that head. The hub log must
cover a receipt if it has an entry with a later ``hub_ts``, because an extension of the hub log contains
every label that has grown. Otherwise a grace period starts when the monitor first sees the receipt.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from hashlib import sha256

from veen_core.errors import SignatureError
from veen_core.hub_fork import LabelStatement
from veen_core.hub_identity import verify_receipt
from veen_core.receipt import Receipt
from veen_hub.monitor.findings import Finding, Key
from veen_hub.monitor.hub_source import LogTiles
from veen_hub.monitor.label_proofs import LabelProofs, claim_of_head, claim_of_receipt
from veen_hub.monitor.memory import HubMemory
from veen_hub.monitor.rules import HeadPlace, first_that_convicts
from veen_hub.monitor.sightings import SeenReceipt


class ReceiptChecks:
    """The checks of one hub."""

    def __init__(
        self,
        memory: HubMemory,
        tiles: LogTiles,
        proofs: LabelProofs,
        grace_sec: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._memory = memory
        self._tiles = tiles
        self._proofs = proofs
        self._grace_sec = grace_sec
        self._clock = clock
        self._own: dict[tuple[bytes, int], bool] = {}
        """Whether this hub signed a receipt, by the receipt's hash and the number of the hub's keys."""
        self._done: set[bytes] = set()
        self._waiting: dict[bytes, float] = {}
        """When receipts that the hub log does not cover yet were first seen."""

    @property
    def is_waiting(self) -> bool:
        """Whether the hub log has to cover a receipt within the grace period."""
        return any(self._clock() - since < self._grace_sec for since in self._waiting.values())

    @property
    def waiting(self) -> int:
        """How many receipts the hub log does not cover yet."""
        return len(self._waiting)

    def is_own(self, receipt: Receipt) -> bool:
        """Return whether this hub signed a receipt; asked again when the hub has another key."""
        identity = self._memory.known.identity
        name = _hash_of(receipt), len(identity.hub_keys)
        if name not in self._own:
            try:
                verify_receipt(identity, receipt)
            except SignatureError:
                self._own[name] = False
            else:
                self._own[name] = True
        return self._own[name]

    async def check(self, seen: Iterable[SeenReceipt]) -> list[Finding]:
        """Check every receipt that is not below a head yet."""
        found: list[Finding] = []
        waiting: dict[bytes, float] = {}
        for each in seen:
            name = _hash_of(each.receipt)
            if name in self._done or not self.is_own(each.receipt):
                continue
            place = self._memory.head(each.receipt.label)
            if place is not None and place.head.upto_seq >= each.receipt.stream_seq:
                finding = await self._below(each, place)
                self._done |= {name} if finding is None or finding.evidence is not None else set()
            else:
                waiting[name] = self._waiting.get(name, self._clock())
                finding = await self._uncovered(each, waiting[name])
            found += [finding] if finding is not None else []
        self._waiting = waiting
        return found

    async def _below(self, each: SeenReceipt, place: HeadPlace) -> Finding | None:
        """Compare a receipt with a head of its label that covers it."""
        known, signed = self._memory.known, self._memory.held
        assert signed is not None

        async def prove() -> LabelStatement:
            return await self._tiles.statement(signed, place)

        contradiction = await self._proofs.compare(
            known.identity, known.origin, claim_of_receipt(each.receipt), claim_of_head(place.head, prove)
        )
        if contradiction is None:
            return None
        return Finding(
            key=Key.LABEL_FORK,
            subject=_subject(each),
            message=f"{_subject(each)}: the receipt in {each.name} is not below the label's head at "
            f"{place.head.upto_seq} entries in the hub log: {contradiction.why}",
            evidence=contradiction.evidence,
        )

    async def _uncovered(self, each: SeenReceipt, since: float) -> Finding | None:
        """Make the finding of a receipt that no head of its label covers, if there is one."""
        known, receipt = self._memory.known, each.receipt
        is_read = self._memory.held is None or known.checked == self._memory.held.head.size
        is_due = (is_read and known.newest_ts > receipt.hub_ts) or self._clock() - since >= self._grace_sec
        if not is_due:
            return None
        other = await self._proofs.receipt(known.identity, receipt.label, receipt.stream_seq)
        if other is not None and other.mmr_root != receipt.mmr_root:
            pair = LabelStatement(receipt=receipt), LabelStatement(receipt=other)
            return Finding(
                key=Key.LABEL_FORK,
                subject=_subject(each),
                message=f"{_subject(each)}: the hub has another receipt for it than {each.name}",
                evidence=first_that_convicts(known.identity, known.origin, [pair], ()),
            )
        denies = "and the hub says that it has no such entry" if other is None else "although the hub has it"
        return Finding(
            key=Key.SEEN_MISSING,
            subject=_subject(each),
            message=f"{_subject(each)}: the hub log does not cover it, {denies}; {each.name} has its receipt",
        )


def _subject(each: SeenReceipt) -> str:
    return f"entry {each.receipt.stream_seq} of label {each.receipt.label.hex()}"


def _hash_of(receipt: Receipt) -> bytes:
    return sha256(receipt.encode()).digest()
