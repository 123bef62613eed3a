"""Resync: a client without state rebuilds it from the hub, verified (§9, RESYNC0)."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core import hub_identity
from veen_core.api import ProofRequest, ProofResponse, ReceiptRequest, ReceiptResponse
from veen_core.cap import CapToken, mint
from veen_core.ids import ClientId, StreamId
from veen_core.proof import peaks_of_proof
from veen_hub.client import Identity, Refused, connect
from veen_selftest.core.checkpoints import fetch, make
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.verifier import read_entries
from veen_selftest.runner.check import Check, Skip, require, require_equal
from veen_selftest.runner.context import CheckContext


def _from_checkpoint(context: CheckContext) -> None:
    """A checkpoint and one proof give the peaks from which every later root follows (RESYNC0.2)."""
    hub = context.hub()
    writer = context.writer(hub)
    hub.accept_many(writer.many(11))
    make(hub, writer.label)
    hub.accept_many(writer.many(6))
    held = fetch(hub, writer.label)
    hub_identity.verify_checkpoint(hub.known.identity, held, hub.known.profile.epoch_sec)
    asked = ReceiptRequest(label=writer.label, stream_seq=held.upto_seq)
    last = hub.ask("/v1/receipt", asked, ReceiptResponse).receipt
    require_equal(last.mmr_root, held.mmr_root, "the root of the receipt at upto_seq")
    proof = hub.ask(
        "/v1/proof", ProofRequest(label=writer.label, stream_seq=held.upto_seq), ProofResponse
    ).mmr_proof
    tree = peaks_of_proof(proof, held.mmr_root, held.upto_seq, last.leaf_hash)
    for item in hub.read_all(writer.label, held.upto_seq + 1):
        require(item.receipt is not None, "an entry has no receipt, although it was asked for")
        assert item.receipt is not None
        tree.append(item.msg.leaf_hash)
        require_equal(
            item.receipt.mmr_root, tree.root, f"mmr_root at {item.stream_seq}, from the checkpoint on"
        )
    require_equal(tree.size, 17, "entries of the whole log")


def _client(context: CheckContext) -> None:
    """The Python client writes, and a new client without state reads and verifies everything (core §9)."""
    hub = context.hub()
    if hub.known.gating and hub.admin is None:
        raise Skip("needs a cap token, which only the hub's admin can issue: give --admin-key")
    try:
        asyncio.run(_write_and_read(context, hub))
    except Refused as refused:
        hub.skip_if_announced((refused.detail_enum or "").encode())
        raise


async def _write_and_read(context: CheckContext, hub: HttpHub) -> None:
    async def source(client_id: ClientId, stream_id: StreamId) -> CapToken:
        assert hub.admin is not None
        return mint(hub.admin, client_id, [stream_id], 100_000)

    me = Identity.generate(context.rng.randbytes)
    name, trust = f"{context.fleet.run}/{context.seed}/{context.name}", hub.known.identity.hub_id
    bodies = [f"message {n}" for n in range(8)]
    async with connect(hub.url, me, trust=trust, tokens=source, tls=hub.tls) as mine:
        stream = mine.stream(name)
        sent = [receipt async for receipt in stream.send_many(bodies)]
        epoch = mine.epoch_at(sent[0].hub_ts)
    async with connect(hub.url, me, trust=trust, tls=hub.tls) as fresh:
        read = [message async for message in fresh.stream(name).read(epoch=epoch)]
        require_equal([message.text for message in read], bodies, "messages that a new client reads")
        head = await fresh.stream(name).head(epoch=epoch)
        require_equal(head, sent[-1], "the head that a new client finds")
    pairs = list(read_entries(hub, sent[0].label))
    require_equal([pair.receipt for pair in pairs], sent, "receipts that the client was given")


CHECKS: Final = (
    Check("resync.from-checkpoint", "core §9, RESYNC0.2", _from_checkpoint),
    Check("resync.client", "core §9", _client),
)
