"""Resync: who lost their state, or never had any, gets it back from the hub, verified (§9, RESYNC0)."""

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
from veen_selftest.hubs.http_hub import Hub
from veen_selftest.peers.verifier import shown
from veen_selftest.runner.check import Check, Skip, require, same
from veen_selftest.runner.context import Bench


def _from_checkpoint(bench: Bench) -> None:
    """A checkpoint and one proof give the peaks, and every later root follows from them (RESYNC0.2)."""
    hub = bench.hub()
    writer = bench.writer(hub)
    hub.accept_many(writer.many(11))
    make(hub, writer.label)
    hub.accept_many(writer.many(6))
    held = fetch(hub, writer.label)
    hub_identity.verify_checkpoint(hub.known.identity, held, hub.known.profile.epoch_sec)
    asked = ReceiptRequest(label=writer.label, stream_seq=held.upto_seq)
    last = hub.ask("/v1/receipt", asked, ReceiptResponse).receipt
    same(last.mmr_root, held.mmr_root, "the root of the receipt at upto_seq")
    proof = hub.ask(
        "/v1/proof", ProofRequest(label=writer.label, stream_seq=held.upto_seq), ProofResponse
    ).mmr_proof
    tree = peaks_of_proof(proof, held.mmr_root, held.upto_seq, last.leaf_hash)
    for item in hub.read_all(writer.label, held.upto_seq + 1):
        require(item.receipt is not None, "an entry without the receipt asked for")
        assert item.receipt is not None
        tree.append(item.msg.leaf_hash)
        same(item.receipt.mmr_root, tree.root, f"mmr_root at {item.stream_seq}, from the checkpoint on")
    same(tree.size, 17, "entries in all")


def _client(bench: Bench) -> None:
    """The client, which verifies everything, writes, forgets all and reads it back as somebody new (§9)."""
    hub = bench.hub()
    if hub.known.gating and hub.admin is None:
        raise Skip("it takes a cap token, and only the hub's admin can issue one: give --admin-key")
    try:
        asyncio.run(_as_a_client(bench, hub))
    except Refused as refused:
        hub.excuse((refused.detail_enum or "").encode())
        raise


async def _as_a_client(bench: Bench, hub: Hub) -> None:
    async def source(client_id: ClientId, stream_id: StreamId) -> CapToken:
        assert hub.admin is not None
        return mint(hub.admin, client_id, [stream_id], 100_000)

    me = Identity.generate(bench.chance.randbytes)
    name, trust = f"{bench.fleet.run}/{bench.seed}/{bench.name}", hub.known.identity.hub_id
    bodies = [f"message {n}" for n in range(8)]
    async with connect(hub.url, me, trust=trust, tokens=source, tls=hub.tls) as mine:
        stream = mine.stream(name)
        sent = [receipt async for receipt in stream.send_many(bodies)]
        epoch = mine.epoch_at(sent[0].hub_ts)
    async with connect(hub.url, me, trust=trust, tls=hub.tls) as fresh:
        read = [message async for message in fresh.stream(name).read(epoch=epoch)]
        same([message.text for message in read], bodies, "what a new client reads")
        head = await fresh.stream(name).head(epoch=epoch)
        same(head, sent[-1], "the head that a new client finds")
    pairs = list(shown(hub, sent[0].label))
    same([pair.receipt for pair in pairs], sent, "receipts that the client was given")


CHECKS: Final = (
    Check("resync.from-checkpoint", "§9, RESYNC0.2", _from_checkpoint),
    Check("resync.client", "§9", _client),
)
