"""Logs for queries: real keys, receipts and trees, with recorder events at chosen places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from veen_core import SigningKey, SigningSeed
from veen_core.consistency import prove_consistency
from veen_core.hashing import H, u64be
from veen_core.hub_identity import HubIdentity, new_identity
from veen_core.hub_log import LabelHead, origin_of
from veen_core.ids import Epoch, HubId, Label, LeafHash, MmrRoot, NodeHash, StreamSeq, UnixTime
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt, sign_receipt
from veen_core.stream import label as label_of
from veen_core.stream import routing_key, stream_id
from veen_core.tlog import tree
from veen_core.tlog.note import Note, sign_note
from veen_core.tlog.tree_head import TreeHead
from veen_overlays.query import Prefix, QueryAnswer, QueryDescriptor, SourceEvent, canonical_json, normalise
from veen_overlays.query.columns import EntryKind
from veen_overlays.query.plain_engine import PlainEngine, SourceLog
from veen_overlays.query.result.evidence import HubLogLink, ResultEvidence, build_evidence
from veen_overlays.query.result.inclusion import prove_from_leaves
from veen_overlays.query.result.result_file import Execution, ResultFile, make_result

START = 1_763_500_000
EXECUTION = Execution(executed_at=(START + 1_000_000) * 1000, hub_id="ab" * 32)


class Hub:
    """A hub's key and identity."""

    def __init__(self, number: int = 1) -> None:
        self.key = SigningKey(SigningSeed(H(b"query hub" + u64be(number))))
        self.identity = new_identity(self.key, UnixTime(START - 1000))

    @property
    def hub_id(self) -> HubId:
        return self.identity.hub_id


@dataclass
class Stream:
    """One source: a label of a hub that grows entry by entry."""

    name: str
    hub: Hub = field(default_factory=Hub)
    epoch: int = 0

    def __post_init__(self) -> None:
        routing = routing_key(self.hub.hub_id)
        self.label: Label = label_of(routing, stream_id(self.name), Epoch(self.epoch))
        self.mmr = Mmr()
        self.leaves: list[bytes] = []
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.receipts: list[Receipt] = []
        self.entries: list[SourceEvent | EntryKind] = []

    def add(self, kind: EntryKind = EntryKind.EVENT, **values: Any) -> SourceEvent | EntryKind:
        seq = len(self.leaves) + 1
        leaf = LeafHash(H(b"leaf" + self.label + u64be(seq)))
        for node in self.mmr.append(leaf):
            self.nodes[node.height, node.index] = node.hash
        self.leaves.append(leaf)
        ts = UnixTime(values.pop("hub_ts", START + seq))
        receipt = sign_receipt(
            self.hub.key,
            Receipt(
                label=self.label,
                stream_seq=StreamSeq(seq),
                leaf_hash=leaf,
                mmr_root=self.mmr.root,
                hub_ts=ts,
            ),
        )
        self.receipts.append(receipt)
        entry: SourceEvent | EntryKind = kind
        if kind is EntryKind.EVENT:
            payload = values.pop("payload", {"n": seq})
            defaults: dict[str, Any] = {
                "subject_id": f"user:{seq % 3}",
                "principal_id": H(b"principal"),
                "event_type": ("login", "logout")[seq % 2],
                "event_time": ts * 1000 + 7,
                "origin": "api-1",
                "attributed": True,
            }
            entry = SourceEvent(
                stream=self.name,
                hub_id=self.hub.hub_id,
                label=self.label,
                epoch=self.epoch,
                seq=seq,
                hub_commit_time=ts * 1000,
                payload_json=canonical_json.encode(payload),
                receipt=receipt.encode(),
                leaf_hash=leaf,
                **(defaults | values),
            )
        self.entries.append(entry)
        return entry

    @property
    def prefix(self) -> Prefix:
        root = MmrRoot(self.mmr.root) if self.leaves else None
        return Prefix(
            stream=self.name,
            hub_id=self.hub.hub_id,
            label=self.label,
            epoch=self.epoch,
            to_seq=len(self.leaves),
            mmr_root=root,
        )

    @property
    def log(self) -> SourceLog:
        return SourceLog(prefix=self.prefix, entries=list(self.entries))

    def link(self, upto: int, to_seq: int, origin: str | None = None) -> HubLogLink:
        """The way to a hub checkpoint over a hub log with this label's head and one other."""
        receipt = self.receipts[upto - 1]
        head = LabelHead(
            label=self.label,
            upto_seq=receipt.stream_seq,
            mmr_root=receipt.mmr_root,
            hub_ts=receipt.hub_ts,
        )
        log, nodes = tree.Tree(), {}
        for entry in (b"another head", head.encode()):
            for node in log.append(tree.leaf_hash(entry)):
                nodes[node.height, node.index] = node.hash
        made = TreeHead(origin or origin_of(self.hub.hub_id), log.size, log.root)
        note = Note(made.text, (sign_note(self.hub.key, made.origin, made.text),))
        low, high = sorted((upto, to_seq))
        between = None
        if low != high:
            between = prove_consistency(lambda h, i: self.nodes[h, i], StreamSeq(low), StreamSeq(high))
        return HubLogLink(
            head=head,
            index=1,
            head_proof=tuple(map(NodeHash, tree.prove_inclusion(lambda h, i: nodes[h, i], 1, log.size))),
            checkpoint=note.encode(),
            consistency=between,
            origin=origin,
        )


class Evidence:
    """The evidence of streams in memory."""

    def __init__(self, streams: Sequence[Stream], links: Mapping[Label, HubLogLink] | None = None) -> None:
        self._streams = {stream.label: stream for stream in streams}
        self._links = links or {}

    def head(self, prefix: Prefix) -> bytes | None:
        receipts = self._streams[prefix.label].receipts
        return receipts[prefix.to_seq - 1].encode() if prefix.to_seq else None

    def proof(self, prefix: Prefix, seqs: Sequence[int]) -> bytes:
        return prove_from_leaves(self._streams[prefix.label].leaves, seqs, prefix.to_seq)

    def link(self, prefix: Prefix) -> HubLogLink | None:
        return self._links.get(prefix.label)


def identities(streams: Sequence[Stream]) -> dict[HubId, HubIdentity]:
    return {stream.hub.hub_id: stream.hub.identity for stream in streams}


def query(*scope: str, **parts: Any) -> QueryDescriptor:
    item = {
        "query_id": "q-test",
        "scope": list(scope),
        "filter": {},
        "projection": ["*"],
        "evidence": {"mode": "full"},
    }
    return normalise(item | parts, new_query_id="q-new")


def engine(*streams: Stream) -> PlainEngine:
    return PlainEngine([stream.log for stream in streams])


def answer(descriptor: QueryDescriptor, *streams: Stream) -> QueryAnswer:
    made = engine(*streams)
    return made.execute(descriptor, made.prefixes(descriptor.scope))


def evidence_of(descriptor: QueryDescriptor, found: QueryAnswer, *streams: Stream) -> ResultEvidence:
    return build_evidence(descriptor, found, Evidence(streams), identities(streams))


def result(descriptor: QueryDescriptor, *streams: Stream) -> ResultFile:
    found = answer(descriptor, *streams)
    return make_result(descriptor, found, evidence_of(descriptor, found, *streams), EXECUTION)


def two_streams(count: int = 9) -> tuple[Stream, Stream]:
    """Two streams of one hub: events, and one entry of each other kind."""
    hub = Hub()
    first, second = Stream("record/app/http", hub), Stream("record/app/auth", hub)
    for number in range(count):
        first.add()
        second.add()
        if number == 3:
            for kind in (EntryKind.UNOPENED, EntryKind.PRUNED, EntryKind.OTHER):
                first.add(kind)
    return first, second
