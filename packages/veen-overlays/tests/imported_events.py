"""One event of another hub as a bridge imports it, in both modes, from fixed keys (RESOLUTIONS P4, P7)."""

from __future__ import annotations

from functools import cache

from veen_core.ciphertext import Binding
from veen_core.ids import BundleId, ClientId, ClientSeq, Epoch, HubPk, MmrRoot, StreamSeq, UnixTime
from veen_core.keys import DhKey, DhSecret, SigningKey, SigningSeed
from veen_core.msg import seal_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import DEFAULT_PROFILE
from veen_core.receipt import Receipt, sign_receipt
from veen_core.stream import hub_id, label, routing_key, stream_id
from veen_overlays.bridge.records import ImportedEvent, leaf_of
from veen_overlays.kv import Put

HUB = SigningKey(SigningSeed(b"\x0a" * 32))
WRITER = SigningKey(SigningSeed(b"\x0b" * 32))
READER = DhKey(DhSecret(b"\x0c" * 32))
BRIDGE = SigningKey(SigningSeed(b"\x0d" * 32))


@cache
def imported(*, resealed: bool) -> ImportedEvent:
    """The first entry of a label, wrapped or resealed."""
    hub = hub_id(HubPk(HUB.public))
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=label(routing_key(hub), stream_id("export/zone1/orders"), Epoch(0)),
        client_id=ClientId(WRITER.public),
        client_seq=ClientSeq(1),
        prev_ack=StreamSeq(0),
    )
    body = Put(key=b"k", value=b"v")
    header = PayloadHeader(schema=Put.SCHEMA)
    ephemeral = DhSecret(b"\x0e" * 32)
    sealed = seal_msg(
        WRITER, READER.public, binding, header, body.encode(), profile=DEFAULT_PROFILE, ephemeral=ephemeral
    )
    receipt = Receipt(
        label=binding.label,
        stream_seq=StreamSeq(1),
        leaf_hash=sealed.msg.leaf_hash,
        mmr_root=MmrRoot(sealed.msg.leaf_hash),
        hub_ts=UnixTime(1_700_000_000),
    )
    return ImportedEvent(
        bundle_id=BundleId(b"\x41" * 32),
        source_hub_id=hub,
        source_label=binding.label,
        source_stream_seq=StreamSeq(1),
        origin_receipt=sign_receipt(HUB, receipt).encode(),
        origin_msg=None if resealed else sealed.wire,
        import_time=UnixTime(1_700_000_100),
        bridge_id=ClientId(BRIDGE.public),
        origin_leaf=leaf_of(sealed.msg) if resealed else None,
    )
