"""A hub in memory, for tests: honest by default, and able to lie on request.

Like the repository simulator of python-tuf, it holds keys, an identity, a log and a clock that the test
sets, and answers with the objects that a real hub would send. It checks nothing that is appended: admission
belongs to the hub package, and a test may want to append an invalid message.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from veen_core import (
    DEFAULT_PROFILE,
    Binding,
    Checkpoint,
    ClientId,
    DhKey,
    DhSecret,
    Entry,
    HubIdentity,
    HubPk,
    Label,
    Mmr,
    MmrConsistency,
    MmrProof,
    Msg,
    PayloadHeader,
    Profile,
    Receipt,
    SigningKey,
    SigningSeed,
    StreamSeq,
    prove_consistency,
    prove_inclusion,
    seal_msg,
    stream,
)
from veen_core.cap import CapToken
from veen_core.checkpoint import LabelOrigin, sign_checkpoint
from veen_core.client import LabelClient, Trust
from veen_core.client_state import ClientBounds, ClientState, RatchetKey
from veen_core.entry import FLAG_AUTHORIZE, authorize_leaf
from veen_core.hashing import H, u64be
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_identity import new_identity, rotate
from veen_core.hub_log import LabelHead, hashes, origin_of
from veen_core.ids import AuthRef, ClientSeq, Epoch, MmrRoot, SchemaId, UnixTime
from veen_core.receipt import sign_receipt
from veen_core.tlog import tree
from veen_core.tlog.note import Note, cosign, sign_note
from veen_core.tlog.tree_head import SignedHead, TreeHead

BORN = UnixTime(1_700_000_000)
"""When every simulated hub is created: not at the start of an epoch, so that tests meet the boundaries."""
SCHEMA = SchemaId(H(b"test.schema.v1"))
STREAM = stream.stream_id("orders")


def signing_key(name: str) -> SigningKey:
    """Return the key of a name; the same in every test."""
    return SigningKey(SigningSeed(H(b"sign:" + name.encode())))


def dh_key(name: str) -> DhKey:
    return DhKey(DhSecret(H(b"dh:" + name.encode())))


READER = dh_key("reader")


def seal(
    key: SigningKey,
    binding: Binding,
    body: bytes = b"hello",
    *,
    profile: Profile = DEFAULT_PROFILE,
    header: PayloadHeader | None = None,
    attachments: tuple[bytes, ...] = (),
) -> Msg:
    """Seal for the stream's reader, with an ephemeral key drawn from the body and the binding."""
    ephemeral = DhSecret(H(b"ephemeral" + body + binding.aad))
    sealed = seal_msg(
        key,
        READER.public,
        binding,
        header or PayloadHeader(schema=SCHEMA),
        body,
        profile=profile,
        ephemeral=ephemeral,
        attachments=attachments,
    )
    return sealed.msg


@dataclass(slots=True)
class Hub:
    """A hub with one label; ``now`` is its clock."""

    name: str = "hub"
    profile: Profile = DEFAULT_PROFILE
    now: UnixTime = BORN
    control: bool = False
    """Whether its label is the control label (H5)."""
    keys: list[SigningKey] = field(default_factory=list)
    identity: HubIdentity = field(init=False)
    entries: list[Entry] = field(default_factory=list)
    log: Mmr = field(default_factory=Mmr)
    nodes: dict[tuple[int, int], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.keys = [signing_key(f"{self.name}/0")]
        self.identity = new_identity(self.keys[0], self.now)

    # --- who it is

    @property
    def key(self) -> SigningKey:
        return self.keys[-1]

    @property
    def hub_pk(self) -> HubPk:
        return HubPk(self.key.public)

    @property
    def origin(self) -> LabelOrigin:
        return LabelOrigin(
            routing_key=stream.routing_key(self.identity.hub_id),
            stream_id=STREAM,
            epoch_sec=self.profile.epoch_sec,
            max_skew_sec=60,
        )

    @property
    def epoch(self) -> Epoch:
        return stream.epoch_at(self.now, self.profile.epoch_sec)

    @property
    def label(self) -> Label:
        """The label of the epoch in which the hub was created."""
        if self.control:
            return stream.control_label(stream.routing_key(self.identity.hub_id))
        return self.origin.label_at(stream.epoch_at(BORN, self.profile.epoch_sec))

    def rotate_key(self, window_sec: int = 600) -> None:
        fresh = signing_key(f"{self.name}/{len(self.keys)}")
        self.identity = rotate(self.identity, self.key, HubPk(fresh.public), self.now, window_sec)
        self.keys.append(fresh)

    # --- writing

    def append(self, msg: Msg, *, key: SigningKey | None = None) -> Receipt:
        """Append a message and return its receipt."""
        receipt = self._commit(msg.leaf_hash, key or self.key)
        self._file(msg.encode(), receipt, 0)
        return receipt

    def authorize(self, token: CapToken) -> Receipt:
        """Append a control entry, which holds a token instead of a MSG (H5)."""
        receipt = self._commit(authorize_leaf(token.auth_ref, token.encode()), self.key)
        self._file(token.encode(), receipt, FLAG_AUTHORIZE)
        return receipt

    def _commit(self, leaf: bytes, key: SigningKey) -> Receipt:
        for node in self.log.append(leaf):
            self.nodes[node.height, node.index] = node.hash
        unsigned = Receipt(
            label=self.label,
            stream_seq=self.log.stream_seq,
            leaf_hash=leaf,
            mmr_root=self.log.root,
            hub_ts=self.now,
        )
        return sign_receipt(key, unsigned)

    def _file(self, msg_bytes: bytes, receipt: Receipt, flags: int) -> None:
        self.entries.append(
            Entry(self.label, receipt.stream_seq, msg_bytes, receipt.encode(), flags),
        )

    def write(self, who: str, *bodies: bytes) -> list[Receipt]:
        """Append messages of another writer."""
        return [self.append(self.compose(who, body)) for body in bodies or (b"from " + who.encode(),)]

    def compose(self, who: str, body: bytes = b"hello", *, auth_ref: AuthRef | None = None) -> Msg:
        """Seal the next message of a writer that has read the whole log."""
        key = signing_key(who)
        sent = sum(e.msg.client_id == key.public for e in self.entries if not e.is_authorize)
        binding = Binding(
            profile_id=self.profile.profile_id,
            label=self.label,
            client_id=ClientId(key.public),
            client_seq=ClientSeq(sent + 1),
            prev_ack=self.log.stream_seq,
            auth_ref=auth_ref,
        )
        return seal(key, binding, body, profile=self.profile)

    # --- reading

    def page(self, from_seq: int, to_seq: int | None = None) -> list[Entry]:
        return self.entries[from_seq - 1 : to_seq]

    def receipt(self, stream_seq: int) -> Receipt:
        return self.entries[stream_seq - 1].receipt

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]

    def proof(self, stream_seq: int, tree_size: int | None = None) -> MmrProof:
        return prove_inclusion(self.lookup, StreamSeq(stream_seq), tree_size)

    def consistency(self, from_seq: int, to_seq: int) -> MmrConsistency:
        return prove_consistency(self.lookup, StreamSeq(from_seq), StreamSeq(to_seq))

    def tree(self, size: int) -> Mmr:
        tree = Mmr()
        for entry in self.entries[:size]:
            tree.append(entry.receipt.leaf_hash)
        return tree

    def checkpoint(self, upto_seq: int, witnesses: tuple[SigningKey, ...] = ()) -> Checkpoint:
        """Return the checkpoint at ``upto_seq``, without label rotation (H9)."""
        unsigned = Checkpoint(
            label_prev=self.label,
            label_curr=self.label,
            upto_seq=StreamSeq(upto_seq),
            mmr_root=self.tree(upto_seq).root,
            epoch=stream.epoch_at(self.receipt(upto_seq).hub_ts, self.profile.epoch_sec),
        )
        return sign_checkpoint(self.key, unsigned, witnesses)

    # --- lying

    def fork(self, at: int) -> Hub:
        """Return the same hub with a second history, which differs after ``at`` entries."""
        other = Hub(name=self.name, profile=self.profile, now=BORN, control=self.control)
        other.keys, other.identity, other.now = list(self.keys), self.identity, self.now
        for entry in self.entries[:at]:
            for node in other.log.append(entry.receipt.leaf_hash):
                other.nodes[node.height, node.index] = node.hash
            other.entries.append(entry)
        return other

    def forged(self, receipt: Receipt, **changes: object) -> Receipt:
        """Return a changed receipt that the hub has signed."""
        return sign_receipt(self.key, dataclasses.replace(receipt, **changes))


WITNESSES = ("alice.example/w", "bob.example/w", "carol.example/w")
"""Names of witness keys; ``signing_key`` gives the key of each."""


class HubLog:
    """The hub log of a simulated hub: heads of its label among heads of others, and every node (P1)."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.heads: list[LabelHead] = []
        self.nodes: dict[tuple[int, int], bytes] = {}
        self.tree = tree.Tree()

    def add(self, head: LabelHead) -> int:
        """Append an entry and return its index."""
        for node in self.tree.append(tree.leaf_hash(head.encode())):
            self.nodes[node.height, node.index] = node.hash
        self.heads.append(head)
        return len(self.heads) - 1

    def add_own(self) -> int:
        """Append the head of the hub's label."""
        receipt = self.hub.receipt(len(self.hub.entries))
        return self.add(head_of(receipt))

    def add_others(self, count: int) -> None:
        """Append heads of other labels."""
        for number in range(len(self.heads), len(self.heads) + count):
            label = Label(H(b"label %d" % number))
            root = MmrRoot(H(b"root %d" % number))
            self.add(LabelHead(label=label, upto_seq=StreamSeq(1), mmr_root=root, hub_ts=self.hub.now))

    def lookup(self, height: int, index: int) -> bytes:
        return self.nodes[height, index]

    def checkpoint(
        self,
        *cosigners: str,
        keys: tuple[SigningKey, ...] | None = None,
        origin: str | None = None,
        size: int | None = None,
        now: int | None = None,
    ) -> SignedHead:
        """Return the hub checkpoint, signed by the hub's newest key or by ``keys``, and cosigned."""
        name = origin or origin_of(self.hub.identity.hub_id)
        grown = tree.tree_at(len(self.heads) if size is None else size, self.lookup)
        head = TreeHead(name, grown.size, grown.root)
        time = UnixTime(self.hub.now if now is None else now)
        lines = [
            *(sign_note(key, name, head.text) for key in keys or (self.hub.key,)),
            *(cosign(signing_key(cosigner), cosigner, head.text, time) for cosigner in cosigners),
        ]
        return SignedHead(head, Note(head.text, tuple(lines)))

    def evidence(self, stream_seq: int, index: int, checkpoint: SignedHead) -> HubEvidence:
        """Return evidence for a message by the head at ``index`` and a hub checkpoint."""
        head, name = self.heads[index], checkpoint.head.origin
        return HubEvidence(
            identity=self.hub.identity,
            receipt=self.hub.receipt(stream_seq),
            proof=self.hub.proof(stream_seq, head.upto_seq),
            head=head,
            index=index,
            head_proof=hashes(tree.prove_inclusion(self.lookup, index, checkpoint.head.size)),
            checkpoint=checkpoint.encode(),
            origin=None if name == origin_of(self.hub.identity.hub_id) else name,
        )


def head_of(receipt: Receipt) -> LabelHead:
    """Return the head of a label whose newest RECEIPT this is (P1)."""
    return LabelHead(
        label=receipt.label, upto_seq=receipt.stream_seq, mmr_root=receipt.mmr_root, hub_ts=receipt.hub_ts
    )


@dataclass(slots=True)
class Person:
    """A client and its key, as an application would hold them."""

    name: str
    hub: Hub
    client: LabelClient

    @property
    def key(self) -> SigningKey:
        return signing_key(self.name)

    @property
    def state(self) -> ClientState:
        return self.client.state

    def compose(self, body: bytes = b"hello") -> Msg:
        return seal(self.key, self.client.next_binding(self.hub.now), body, profile=self.hub.profile)

    def submit(self, body: bytes = b"hello") -> Msg:
        """Seal the next message and add it to the pending ones."""
        msg = self.compose(body)
        self.client.submitted(msg)
        return msg

    def send(self, body: bytes = b"hello") -> Receipt:
        """Send a message while no other writer writes."""
        receipt = self.hub.append(self.submit(body))
        assert self.client.accept_receipt(receipt) is None
        return receipt

    def read(self) -> None:
        """Read all entries after the verified prefix."""
        self.client.accept_page(self.hub.page(self.state.last_stream_seq + 1))

    def restarted(self) -> Person:
        """Return the client as it is after a crash, with only the persisted state."""
        state = ClientState.decode(self.state.encode())
        return Person(self.name, self.hub, LabelClient(state, self.client.trust, self.client.bounds))


def trust_in(hub: Hub) -> Trust:
    return Trust(identity=hub.identity, profile=hub.profile, origin=hub.origin)


def person(name: str, hub: Hub, *, bounds: ClientBounds | None = None, trust: Trust | None = None) -> Person:
    """Return a client with an empty verified prefix."""
    state = ClientState(
        label=hub.label,
        profile_id=hub.profile.profile_id,
        client_id=ClientId(signing_key(name).public),
        created_at=hub.now,
        rk=RatchetKey(H(b"rk:" + name.encode())),
    )
    return Person(name, hub, LabelClient(state, trust or trust_in(hub), bounds))


def flip(data: bytes, at: int = 0) -> bytes:
    """Return the bytes with one bit flipped."""
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def long_form(seq: int) -> bytes:
    """Encode an integer in eight bytes although fewer suffice, which is not canonical (§3.1)."""
    return b"\x1b" + u64be(seq)
