"""A live hub as Spark sees it: heads to plan by, and verified entries of a range (§9 Read).

Every page goes through ``veen_hub.client``, which verifies MSG, RECEIPT, leaf and root against the tree it
keeps. Between connections nothing is kept but offsets, so each carries the root at its place: a hub that
shows another one later, or shows a task another one than the batch was planned by, has two histories, and the
stream ends there.
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
"""About so much of a stretch is in memory at once, however large its messages are."""


class Offset(TypedDict):
    """How far a label was read."""

    seq: int
    root: str
    """The mmr_root at ``seq``, in hex; empty at 0."""


Offsets = dict[str, Offset]
"""By label, in hex: Spark keeps them as JSON."""


class DataLoss(VeenError):  # noqa: N818 - as Spark's option names it
    """The hub no longer has what the stream has still to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveHub:
    """Where the hub is and which one it must be; picklable, since tasks connect for themselves."""

    url: str
    hub_id: HubId
    streams: tuple[str, ...]
    labels: tuple[Label, ...]
    ca: str | None = None
    fail_on_data_loss: bool = True

    def ask(self, question: Callable[[Hub], Awaitable[T]]) -> T:
        """One conversation, from a program that has no event loop."""

        async def talk() -> T:
            tls = Tls(ca=self.ca) if self.ca is not None else None
            async with connect(self.url, trust=self.hub_id, tls=tls, retry=Retry(deadline=30.0)) as hub:
                return await question(hub)

        return asyncio.run(talk())

    def all_labels(self, hub: Hub) -> list[Label]:
        if self.streams and hub.connection.profile.epoch_sec:
            raise SparkSetupError(
                "the hub's profile has epochs, a stream has a label for each: name them with option label"
            )
        return [*self.labels, *(hub.stream(name).label() for name in self.streams)]


async def offset_at(hub: Hub, label: Label, seq: int) -> Offset:
    """The offset after entry ``seq``, with the verified root there."""
    if seq <= 0:
        return Offset(seq=0, root="")
    receipt = await hub.log_reader().receipt(label, StreamSeq(seq))
    return Offset(seq=seq, root=receipt.mmr_root.hex())


async def starting(hub: Hub, live: LiveHub, wanted: str) -> Offsets:
    """``earliest``, ``latest``, or JSON: the first stream_seq to read, by label."""
    labels = live.all_labels(hub)
    given = _given(wanted, {label.hex() for label in labels})
    offsets: Offsets = {}
    for label in labels:
        if wanted == "latest":
            head = await hub.log_reader().head(label)
            offsets[label.hex()] = await offset_at(hub, label, head.stream_seq if head is not None else 0)
        else:
            offsets[label.hex()] = await offset_at(hub, label, given.get(label.hex(), 1) - 1)
    return offsets


def _given(wanted: str, labels: Collection[str]) -> Mapping[str, int]:
    """The numbers that ``startingOffsets`` names; what is asked wrongly would otherwise be ``earliest``."""
    if wanted in ("earliest", "latest"):
        return {}
    try:
        given = json.loads(wanted)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not all(type(seq) is int and seq >= 1 for seq in given.values()):
        raise SparkSetupError(
            f'option startingOffsets: want earliest, latest or {{"<label>": first number}}, found {wanted}'
        )
    if unknown := sorted(given.keys() - set(labels)):
        raise SparkSetupError(f"option startingOffsets: {unknown[0]} is no label of this stream")
    return given


async def latest(hub: Hub, live: LiveHub, start: Offsets, most: int | None) -> Offsets:
    """How far there is to read, or ``most`` entries of it, assign_to_parts out among the labels."""
    heads: dict[Label, int] = {}
    for label in live.all_labels(hub):
        held = start.get(label.hex(), Offset(seq=0, root=""))
        heads[label] = max(held["seq"], await _checked_head(hub, live, label, held))
    room = {
        label: head - start.get(label.hex(), Offset(seq=0, root=""))["seq"] for label, head in heads.items()
    }
    shares = deal(room, most)
    found: Offsets = {}
    for label, head in heads.items():
        seq = head - room[label] + shares[label]
        same = start.get(label.hex())
        found[label.hex()] = same if same and same["seq"] == seq else await offset_at(hub, label, seq)
    return found


def deal(room: Mapping[Label, int], most: int | None) -> dict[Label, int]:
    """At most ``most`` in all: the same to each, and what one does not need to the others."""
    if most is None:
        return dict(room)
    shares: dict[Label, int] = {}
    left = most
    for number, label in enumerate(sorted(room, key=lambda label: (room[label], label))):
        shares[label] = min(room[label], left // (len(room) - number))
        left -= shares[label]
    return shares


async def _checked_head(hub: Hub, live: LiveHub, label: Label, held: Offset) -> int:
    head = await hub.log_reader().head(label)
    size = head.stream_seq if head is not None else 0
    if size < held["seq"]:
        if live.fail_on_data_loss:
            raise DataLoss(
                f"label {label.hex()} ends at {size}, the stream has read up to {held['seq']}: the hub lost "
                "entries, or is another one; failOnDataLoss=false waits for it to grow"
            )
        return held["seq"]
    if held["seq"]:
        await _check_root(hub, label, held)
    return size


async def _check_root(hub: Hub, label: Label, held: Offset) -> None:
    """What this connection shows is the history of ``held``: a connection follows one tree."""
    there = await hub.log_reader().receipt(label, StreamSeq(held["seq"]))
    if there.mmr_root.hex() != held["root"]:
        raise DivergenceError(
            f"label {label.hex()} has another root at {held['seq']} than when it was read: two histories",
            shown=there.encode(),
        )


async def entries(
    hub: Hub, live: LiveHub, label: Label, *, start: int, end: int, upto: Offset
) -> list[Entry | Receipt]:
    """The first of entries ``start … end``, verified, up to ``MAX_BUFFERED_BYTES``; at least one.

    They are of the history that the batch was planned by: ``upto`` is in the same tree. Of one that retention
    took it is the RECEIPT, if loss is tolerated.
    """
    found: list[Entry | Receipt] = []
    reader, at, size = hub.log_reader(), start, 0
    while at <= end and size < MAX_BUFFERED_BYTES:
        try:
            page = await reader.page(label, StreamSeq(at), min(PAGE_ENTRIES, end - at + 1))
        except NotFound as exc:
            if live.fail_on_data_loss:
                raise DataLoss(
                    f"entry {at} of label {label.hex()} was pruned before it was read ({exc}): "
                    "failOnDataLoss=false goes on with its receipt"
                ) from exc
            found.append(await reader.receipt(label, StreamSeq(at)))
            at += 1
            continue
        if not page:
            raise DataLoss(f"label {label.hex()} ends before {at}, where the hub had {end} entries")
        found += page
        at += len(page)
        size += sum(len(entry.msg_bytes) for entry in page)
    await _check_root(hub, label, upto)
    return found
