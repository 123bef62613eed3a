"""Access to a live hub for the streaming source: heads, and verified entries of a range (core §9 Read).

``veen_hub.client`` verifies MSG, RECEIPT, leaf and root of every page against its tree. Only offsets survive
between connections, so each offset carries the root at its entry. If the hub later shows another root there,
or shows a task another root than the driver saw, the hub has two histories and the stream fails.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, TypedDict, TypeVar

from veen_core.entry import Entry
from veen_core.errors import DivergenceError, VeenError
from veen_core.ids import HubId, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_hub.client import Hub, NotFound, Retry, Tls, connect
from veen_spark.errors import SparkSetupError

T = TypeVar("T")
PAGE_ENTRIES: Final = 1_000
MAX_BUFFERED_BYTES: Final = 16 * 1_048_576
"""Approximate bytes of messages that a task holds at once."""


class Offset(TypedDict):
    """The position up to which a label was read."""

    seq: int
    root: str
    """The mmr_root after entry ``seq``, in hex; empty for 0."""


Offsets = dict[str, Offset]
"""Offsets by label in hex; Spark stores them as JSON."""


class DataLoss(VeenError):  # noqa: N818 - as Spark's option names it
    """The hub no longer has entries that the stream has not read yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHub:
    """The address and id of a hub, and the labels to read; picklable, because every task connects."""

    url: str
    hub_id: HubId
    streams: tuple[str, ...]
    labels: tuple[Label, ...]
    ca: str | None = None
    fail_on_data_loss: bool = True

    def ask(self, question: Callable[[Hub], Awaitable[T]]) -> T:
        """Connect, run one coroutine, and disconnect; for callers without an event loop."""

        async def talk() -> T:
            tls = Tls(ca=self.ca) if self.ca is not None else None
            async with connect(self.url, trust=self.hub_id, tls=tls, retry=Retry(deadline=30.0)) as hub:
                return await question(hub)

        return asyncio.run(talk())

    def all_labels(self, hub: Hub) -> list[Label]:
        """Return the labels of the chosen streams and the labels that were given."""
        if self.streams and hub.connection.profile.epoch_sec:
            raise SparkSetupError(
                "the hub's profile has epochs, so a stream has several labels",
                action="name the labels with the option label",
            )
        return [*self.labels, *(hub.stream(name).label() for name in self.streams)]


async def offset_at(hub: Hub, label: Label, seq: int) -> Offset:
    """Return the offset after entry ``seq``, with the verified root."""
    if seq <= 0:
        return Offset(seq=0, root="")
    receipt = await hub.log_reader().receipt(label, StreamSeq(seq))
    return Offset(seq=seq, root=receipt.mmr_root.hex())


async def starting(hub: Hub, live: LiveHub, wanted: str) -> Offsets:
    """Return the offsets for ``startingOffsets``: earliest, latest, or JSON with a first entry per label."""
    labels = live.all_labels(hub)
    given = _first_entries(wanted, {label.hex() for label in labels})
    offsets: Offsets = {}
    for label in labels:
        if wanted == "latest":
            head = await hub.log_reader().head(label)
            offsets[label.hex()] = await offset_at(hub, label, head.stream_seq if head is not None else 0)
        else:
            offsets[label.hex()] = await offset_at(hub, label, given.get(label.hex(), 1) - 1)
    return offsets


def _first_entries(wanted: str, labels: Collection[str]) -> Mapping[str, int]:
    """Parse the JSON form of ``startingOffsets``; raise for anything else but earliest and latest."""
    if wanted in ("earliest", "latest"):
        return {}
    try:
        given = json.loads(wanted)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(type(seq) is int and seq >= 1 for seq in given.values()):
        raise SparkSetupError(
            f"option startingOffsets: {wanted} is not valid",
            action='use earliest, latest or {"<label in hex>": <first entry>}',
        )
    if unknown := sorted(given.keys() - set(labels)):
        raise SparkSetupError(
            f"option startingOffsets: {unknown[0]} is not a label of this stream",
            action=f"use {' or '.join(sorted(labels))}",
        )
    return given


async def latest(hub: Hub, live: LiveHub, start: Offsets, limit: int | None) -> Offsets:
    """Return the newest offsets, or offsets at most ``limit`` entries ahead, shared among the labels."""
    heads: dict[Label, int] = {}
    for label in live.all_labels(hub):
        offset = start.get(label.hex(), Offset(seq=0, root=""))
        heads[label] = max(offset["seq"], await _checked_head(hub, live, label, offset))
    room = {
        label: head - start.get(label.hex(), Offset(seq=0, root=""))["seq"] for label, head in heads.items()
    }
    shares = share_out(room, limit)
    found: Offsets = {}
    for label, head in heads.items():
        seq = head - room[label] + shares[label]
        same = start.get(label.hex())
        found[label.hex()] = same if same and same["seq"] == seq else await offset_at(hub, label, seq)
    return found


def share_out(room: Mapping[Label, int], limit: int | None) -> dict[Label, int]:
    """Share ``limit`` entries among labels equally; a label that needs less leaves the rest to the others."""
    if limit is None:
        return dict(room)
    shares: dict[Label, int] = {}
    left = limit
    for number, label in enumerate(sorted(room, key=lambda label: (room[label], label))):
        shares[label] = min(room[label], left // (len(room) - number))
        left -= shares[label]
    return shares


async def _checked_head(hub: Hub, live: LiveHub, label: Label, offset: Offset) -> int:
    head = await hub.log_reader().head(label)
    size = head.stream_seq if head is not None else 0
    if size < offset["seq"]:
        if live.fail_on_data_loss:
            raise DataLoss(
                f"label {label.hex()} ends at {size}, but was read up to {offset['seq']}: entries are lost",
                action="restore the hub, or set failOnDataLoss=false to wait for new entries",
            )
        return offset["seq"]
    if offset["seq"]:
        await _check_root(hub, label, offset)
    return size


async def _check_root(hub: Hub, label: Label, offset: Offset) -> None:
    """Raise unless this connection shows the same root at an offset as when it was read."""
    receipt = await hub.log_reader().receipt(label, StreamSeq(offset["seq"]))
    if receipt.mmr_root.hex() != offset["root"]:
        raise DivergenceError(
            f"label {label.hex()}: the root after entry {offset['seq']} has changed, so the hub has "
            "two histories",
            shown=receipt.encode(),
        )


async def entries(
    hub: Hub, live: LiveHub, label: Label, *, start: int, end: int, upto: Offset
) -> list[Entry | Receipt]:
    """Return verified entries from ``start`` on, at most up to ``end`` and about ``MAX_BUFFERED_BYTES``.

    The entries belong to the history that the driver planned with, because ``upto`` is in the same tree. If
    data loss is tolerated, a pruned entry is returned as its RECEIPT.
    """
    found: list[Entry | Receipt] = []
    reader, at, size = hub.log_reader(), start, 0
    while at <= end and size < MAX_BUFFERED_BYTES:
        try:
            page = await reader.page(label, StreamSeq(at), min(PAGE_ENTRIES, end - at + 1))
        except NotFound as exc:
            if live.fail_on_data_loss:
                raise DataLoss(
                    f"entry {at} of label {label.hex()} was pruned before it was read",
                    action="set failOnDataLoss=false to continue with its receipt",
                ) from exc
            found.append(await reader.receipt(label, StreamSeq(at)))
            at += 1
            continue
        if not page:
            raise DataLoss(
                f"label {label.hex()} ends before entry {at}, but had {end} entries before: entries are lost",
                action="restore the hub",
            )
        found += page
        at += len(page)
        size += sum(len(entry.msg_bytes) for entry in page)
    await _check_root(hub, label, upto)
    return found
