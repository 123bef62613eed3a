"""The sources of a query in verified logs: which label is which stream in which epoch (core §2, §12, P11).

A label is a hash of hub, stream and epoch, so the names of the scope are tried on every label. Parts of one
label in several folders, such as exports that continue each other, become one source; copies are read once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from veen_core import stream as streams
from veen_core.errors import VeenError, VerificationError
from veen_core.hub_export import HUB_HEAD, HubHead
from veen_core.hub_identity import HubIdentity
from veen_core.ids import Epoch, HubId, Label, MmrRoot, UnixTime
from veen_core.registry import Registry
from veen_core.tlog.tree_head import parse_signed_head
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.evidence import HubLogLink
from veen_spark.errors import DamagedLog
from veen_spark.read.log_files import VERSION, find_logs, home_of
from veen_spark.read.pushdown import first_ts
from veen_spark.read.segment import SparkSegment
from veen_spark.verify import LabelReport, VerificationReport
from veen_spark.verify.origin import REGISTRY, read_identity

StreamNames = Mapping[str, str]
"""The name in scope of each stream to read: the stream's own, or for an import stream that at the origin."""


class Piece(NamedTuple):
    """The entries of one label that are read from one folder."""

    stream: str
    """The name in scope."""
    hub_id: HubId
    epoch: int
    from_seq: int
    to_seq: int


Pieces = Mapping[tuple[str, bytes], Piece]
"""By folder and label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSources:
    """The sources found in verified logs."""

    pieces: Pieces
    prefixes: tuple[Prefix, ...]
    links: Mapping[bytes, HubLogLink]
    """The proofs up to a hub checkpoint, by label, from the exports that have one."""


def find_sources(paths: Iterable[str], report: VerificationReport, names: StreamNames) -> LogSources:
    """Find the sources of these streams in logs that ``report`` has verified."""
    first = _first_segments(paths)
    pieces: dict[tuple[str, bytes], Piece] = {}
    prefixes, links = list[Prefix](), dict[bytes, HubLogLink]()
    by_label: dict[tuple[bytes, bytes], list[LabelReport]] = {}
    for row in report.labels:
        if row.label is not None and row.hub_id is not None and row.to_seq >= row.from_seq:
            by_label.setdefault((row.hub_id, row.label), []).append(row)
    for (hub, label), rows in sorted(by_label.items()):
        place = _place(HubId(hub), Label(label), first[rows[0].origin, label], names)
        if place is None:
            continue
        chain = _chain(Label(label), rows)
        stream, epoch = place
        for start, row in chain:
            pieces[row.origin, label] = Piece(stream, HubId(hub), epoch, start, row.to_seq)
        last = chain[-1][1]
        assert last.root is not None  # a verified label with entries has a root
        link = _link(last)
        prefix = Prefix(
            stream=stream,
            hub_id=HubId(hub),
            label=Label(label),
            epoch=epoch,
            to_seq=last.to_seq,
            mmr_root=MmrRoot(last.root),
            checkpoint=None if link is None else checkpoint_text(link.checkpoint),
        )
        prefixes.append(prefix)
        if link is not None:
            links[label] = link
    return LogSources(pieces=pieces, prefixes=tuple(prefixes), links=links)


def whole_hubs(paths: Iterable[str], report: VerificationReport) -> list[HubId]:
    """Return the hubs of data directories and clones: a label that is missing there has no entries."""
    whole = find_logs(paths).whole
    return sorted(
        {
            HubId(row.hub_id)
            for row in report.labels
            if row.hub_id is not None
            and row.origin in whole
            and (home_of(Path(row.origin)) / VERSION).is_file()
        }
    )


def _first_segments(paths: Iterable[str]) -> dict[tuple[str, bytes], SparkSegment]:
    found: dict[tuple[str, bytes], SparkSegment] = {}
    for segment in find_logs(paths).segments:  # in the order of entries
        found.setdefault((segment.origin, bytes(segment.label)), segment)
    return found


def _place(hub: HubId, label: Label, segment: SparkSegment, names: StreamNames) -> tuple[str, int] | None:
    """Return the name in scope and the epoch of a label; None if it belongs to none of the streams."""
    routing = streams.routing_key(hub)
    epochs = list(_epochs(segment))
    for stream, name in names.items():
        for epoch in epochs:
            if streams.label(routing, streams.stream_id(stream), Epoch(epoch)) == label:
                return name, epoch
    return None


def _epochs(segment: SparkSegment) -> Iterator[int]:
    """Yield the possible epochs of a label: those that the hub accepted at its first entry (core §12)."""
    path = home_of(Path(segment.origin)) / REGISTRY
    try:
        registry = Registry.decode(path.read_bytes())
    except FileNotFoundError:
        yield 0
        return
    except (VeenError, OSError) as exc:
        raise DamagedLog(str(path), 0, str(exc)) from exc
    if not registry.profile.epoch_sec:
        yield 0
        return
    if (first := first_ts(segment)) is None:
        raise DamagedLog(segment.path, segment.begin, "the time of the first entry cannot be read")
    skew = registry.limits.max_epoch_skew_sec
    yield from streams.epoch_window(UnixTime(first), registry.profile.epoch_sec, skew)


def _chain(label: Label, rows: Sequence[LabelReport]) -> list[tuple[int, LabelReport]]:
    """Return the folders that together hold the label from entry 1 on, each with the first entry to read.

    ``histories_agree`` has compared the roots of copies. Fewer folders are preferred.
    """
    chain, following = list[tuple[int, LabelReport]](), 1
    while reaching := [row for row in rows if row.from_seq <= following <= row.to_seq]:
        longest = max(reaching, key=lambda row: row.to_seq)
        chain.append((following, longest))
        following = longest.to_seq + 1
    beyond = min((row.from_seq for row in rows if row.from_seq > following), default=None)
    if beyond is not None:
        raise VerificationError(
            f"label {label.hex()}: entries {following} to {beyond - 1} are missing",
            action="give the log from entry 1 on, without gaps",
        )
    return chain


def _link(row: LabelReport) -> HubLogLink | None:
    """Return the proofs from an export's end up to a hub checkpoint; verification has checked them."""
    path = Path(row.origin, HUB_HEAD)
    if not path.is_file():
        return None
    head = HubHead.decode(path.read_bytes())
    return HubLogLink(
        head=head.head,
        index=head.index,
        head_proof=head.proof,
        checkpoint=head.checkpoint,
        consistency=head.consistency,
    )


def checkpoint_text(note: bytes) -> str:
    """Return the text of a hub checkpoint, without its signatures (P1)."""
    return parse_signed_head(note).head.text


def identities_in(report: VerificationReport, given: Iterable[HubIdentity]) -> dict[HubId, HubIdentity]:
    """Return the identity of every hub whose logs were verified, and the given ones."""
    found = {identity.hub_id: identity for identity in given}
    for origin in sorted({row.origin for row in report.labels if row.label is not None}):
        home = home_of(Path(origin))
        identity = read_identity(home, (), found.get(_hub_of(report, origin)))
        found.setdefault(identity.hub_id, identity)
    return found


def _hub_of(report: VerificationReport, origin: str) -> HubId:
    return next(HubId(row.hub_id) for row in report.labels if row.origin == origin and row.hub_id is not None)
