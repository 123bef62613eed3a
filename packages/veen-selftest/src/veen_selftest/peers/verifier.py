"""A label's log as a stranger verifies it: every pair, signature and root, from the first on (§7, §9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from veen_core import hub_identity, invariants, msg, stream
from veen_core.checkpoint import LabelOrigin
from veen_core.ids import ClientId, ClientSeq, Label, StreamId
from veen_core.invariants import Before, Pair
from veen_core.mmr import Mmr
from veen_core.receipt import Receipt
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.runner.check import require, same


@dataclass(slots=True)
class VerifiedLog:
    """Pairs in stream order, each verified against all before it."""

    hub: Hub
    label: Label
    stream_id: StreamId | None = None
    pairs: list[Pair] = field(default_factory=list)
    tree: Mmr = field(default_factory=Mmr)
    roots: list[bytes] = field(default_factory=list)
    _clients: dict[ClientId, int] = field(default_factory=dict)

    def before(self, client_id: ClientId) -> Before:
        """The label as it stands, to a client's next message."""
        known = self.hub.known
        origin = None
        if self.stream_id is not None:
            origin = LabelOrigin(
                routing_key=stream.routing_key(known.identity.hub_id),
                stream_id=self.stream_id,
                epoch_sec=known.profile.epoch_sec,
                max_skew_sec=known.limits.max_epoch_skew_sec,
            )
        return Before(
            last_client_seq=ClientSeq(self._clients.get(client_id, 0)),
            profiles={known.profile.profile_id},
            limits=known.limits,
            origin=origin,
            log=self.tree,
        )

    def add(self, wire: bytes, receipt: Receipt) -> Pair:
        """Verify one more pair; raises what is wrong with it, naming the invariant."""
        client_id = msg.Msg.decode(wire).client_id
        pair = invariants.verify_pair(wire, receipt.encode(), self.before(client_id))
        msg.verify_signature(pair.msg, wire)
        hub_identity.verify_receipt(self.hub.known.identity, receipt)
        if self.pairs:
            require(
                receipt.hub_ts >= self.pairs[-1].receipt.hub_ts,
                f"hub_ts went back at stream_seq {receipt.stream_seq} (H3)",
            )
        self.follow(pair)
        return pair

    def follow(self, pair: Pair) -> None:
        """Go on from a pair, whatever is to be thought of it."""
        self.tree.append(pair.receipt.leaf_hash)
        self.roots.append(self.tree.root)
        self._clients[pair.msg.client_id] = pair.msg.client_seq
        self.pairs.append(pair)

    def read(self) -> VerifiedLog:
        """Everything the hub shows, by pages."""
        for pair in shown(self.hub, self.label):
            same(pair.receipt.stream_seq, self.tree.size + 1, "stream_seq of the next item (§10.2)")
            self.add(pair.msg_bytes, pair.receipt)
        return self


def shown(hub: Hub, label: Label) -> Iterator[Pair]:
    """Every pair that the hub shows, in its order, not verified."""
    for item in hub.read_all(label):
        require(item.receipt is not None, f"entry {item.stream_seq} without the receipt asked for")
        assert item.receipt is not None
        yield Pair(item.msg.encode(), item.receipt.encode(), item.msg, item.receipt)


def verified(hub: Hub, label: Label, wires: Sequence[bytes], receipts: Sequence[Receipt]) -> VerifiedLog:
    """What was sent, with the receipts that came back."""
    log = VerifiedLog(hub, label)
    for wire, receipt in zip(wires, receipts, strict=True):
        log.add(wire, receipt)
    return log
