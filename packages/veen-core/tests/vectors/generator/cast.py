"""The fixed inputs of the vectors: keys, one hub, one log of thirteen messages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from veen_core import stream
from veen_core.cap import CapToken, Rate, mint
from veen_core.ciphertext import Binding
from veen_core.entry import Entry
from veen_core.hashing import H
from veen_core.hub_identity import HubIdentity, new_identity, rotate
from veen_core.ids import (
    AuthRef,
    ClientId,
    ClientSeq,
    Epoch,
    HubPk,
    Label,
    LeafHash,
    MmrRoot,
    SchemaId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.mmr import Mmr
from veen_core.msg import Msg, SealedMsg, seal_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import PROFILES, Profile
from veen_core.receipt import Receipt, sign_receipt


def signer(byte: int) -> SigningKey:
    return SigningKey(SigningSeed(bytes([byte]) * 32))


def reader(byte: int) -> DhKey:
    return DhKey(DhSecret(bytes([byte]) * 32))


HUB, NEXT_HUB, OTHER_HUB = signer(0x11), signer(0x12), signer(0x13)
CLIENT, OTHER_CLIENT = signer(0x21), signer(0x22)
ISSUER, STRANGER = signer(0x31), signer(0x32)
WITNESSES = (signer(0x41), signer(0x42))
READER, OTHER_READER = reader(0x51), reader(0x52)
EPHEMERAL = DhSecret(bytes([0x61]) * 32)

BORN = UnixTime(1_700_000_000)
ROTATED = UnixTime(BORN + 1_000)
WINDOW_SEC = 500

HUB_ID = stream.hub_id(HubPk(HUB.public))
ROUTING_KEY = stream.routing_key(HUB_ID)
STREAM, OTHER_STREAM = stream.stream_id("orders"), stream.stream_id("invoices")
LABEL = stream.label(ROUTING_KEY, STREAM, Epoch(0))
SCHEMA = SchemaId(H(b"orders.v1"))
DEFAULT, BULK, ROTATING = PROFILES["default"], PROFILES["bulk"], PROFILES["rotating"]
LOG_SIZE = 13


def identity() -> HubIdentity:
    return new_identity(HUB, BORN)


def rotated_identity() -> HubIdentity:
    return rotate(identity(), HUB, HubPk(NEXT_HUB.public), ROTATED, WINDOW_SEC)


def token(rate: Rate | None = None) -> CapToken:
    return mint(ISSUER, ClientId(CLIENT.public), [STREAM, OTHER_STREAM], 3_600, rate)


def binding(
    profile: Profile = BULK,
    *,
    client: SigningKey = CLIENT,
    client_seq: int = 1,
    prev_ack: int = 0,
    auth_ref: AuthRef | None = None,
    label: Label = LABEL,
) -> Binding:
    return Binding(
        profile_id=profile.profile_id,
        label=label,
        client_id=ClientId(client.public),
        client_seq=ClientSeq(client_seq),
        prev_ack=StreamSeq(prev_ack),
        auth_ref=auth_ref,
    )


def sealed(
    bound: Binding, profile: Profile = BULK, body: bytes = b"order 1", attachments: tuple[bytes, ...] = ()
) -> SealedMsg:
    header = PayloadHeader(schema=SCHEMA, cap_ref=bound.auth_ref)
    return seal_msg(
        CLIENT,
        READER.public,
        bound,
        header,
        body,
        profile=profile,
        ephemeral=EPHEMERAL,
        attachments=attachments,
    )


@dataclass(frozen=True, slots=True)
class Log:
    """Thirteen messages of one client, their receipts, and every node of the tree."""

    msgs: tuple[Msg, ...]
    receipts: tuple[Receipt, ...]
    nodes: dict[tuple[int, int], bytes]

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]

    def leaf(self, stream_seq: int) -> LeafHash:
        return self.receipts[stream_seq - 1].leaf_hash

    def root(self, size: int) -> MmrRoot:
        return self.receipts[size - 1].mmr_root

    def tree(self, size: int) -> Mmr:
        tree = Mmr()
        for leaf in self.receipts[:size]:
            tree.append(leaf.leaf_hash)
        return tree

    def entry(self, stream_seq: int) -> Entry:
        at = stream_seq - 1
        return Entry(LABEL, StreamSeq(stream_seq), self.msgs[at].encode(), self.receipts[at].encode())


@cache
def log() -> Log:
    tree, msgs, receipts, nodes = Mmr(), [], [], {}
    for seq in range(1, LOG_SIZE + 1):
        msg = sealed(binding(client_seq=seq, prev_ack=seq - 1), body=b"order %d" % seq).msg
        nodes.update({(node.height, node.index): node.hash for node in tree.append(msg.leaf_hash)})
        msgs.append(msg)
        receipts.append(receipt(seq, msg.leaf_hash, tree.root))
    return Log(tuple(msgs), tuple(receipts), nodes)


def receipt(
    stream_seq: int,
    leaf: LeafHash,
    root: MmrRoot,
    *,
    key: SigningKey = HUB,
    hub_ts: int | None = None,
    label: Label = LABEL,
) -> Receipt:
    unsigned = Receipt(
        label=label,
        stream_seq=StreamSeq(stream_seq),
        leaf_hash=leaf,
        mmr_root=root,
        hub_ts=UnixTime(BORN + stream_seq if hub_ts is None else hub_ts),
    )
    return sign_receipt(key, unsigned)
