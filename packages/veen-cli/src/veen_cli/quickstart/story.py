"""The story of the quickstart: a token, three messages, a reader, and every claim of the hub verified.

Each step returns what the narrator shows. Nothing is staged: these are the functions that ``veen`` and any
application use, and a check that fails raises.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_cli.quickstart.world import STREAM, Running, World
from veen_core import hub_identity
from veen_core.cap import CapToken, mint
from veen_core.checkpoint import Checkpoint
from veen_core.consistency import MmrConsistency, verify_consistency
from veen_core.errors import VerificationError
from veen_core.ids import ClientId, StreamSeq
from veen_core.proof import MmrProof, verify_inclusion
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_hub.client import Hub, Message, connect

TOKEN_TTL: Final = 3_600
TEXTS: Final = (
    "Hello Bob, this is Alice.",
    "The contract is attached. Please sign it today.",
    "And the price we agreed on: 4200.",
)
ATTACHED: Final = b"CONTRACT\n\nAlice sells, Bob buys, both of their own free will.\n"
ATTACHED_TO: Final = 1
"""Index of the message with the attachment."""


@asynccontextmanager
async def connected(world: World, hub: Running, name: str) -> AsyncIterator[Hub]:
    """Connect as one of the three identities, with the hub pinned by its hub_id."""
    folder = world.person(name)
    secrets = folder.open(lambda: b"")
    async with connect(hub.url, secrets, trust=world.identity.hub_id, state=folder.state) as link:
        yield link


async def permit(world: World, hub: Running) -> CapToken:
    """Let the admin sign a token for Alice, and Alice give it to the hub."""
    issuer = world.person("admin").open(lambda: b"").signing_key
    subject = ClientId(world.person("alice").card().id_sign)
    token = mint(issuer, subject, [stream_id(STREAM)], TOKEN_TTL)
    (world.root / "alice.cap").write_bytes(token.encode())
    async with connected(world, hub, "alice") as link:
        await link.authorize(token)
    return token


async def write(world: World, hub: Running) -> list[Receipt]:
    """Let Alice seal three messages to Bob and send them; one has an attachment."""
    contract = world.root / "contract.txt"
    contract.write_bytes(ATTACHED)
    receipts = []
    async with connected(world, hub, "alice") as link:
        stream = link.stream(STREAM, to=world.person("bob").card())
        for number, text in enumerate(TEXTS):
            attachments = [contract] if number == ATTACHED_TO else []
            receipts.append(await stream.send(text, attachments=attachments))
    return receipts


@dataclass(frozen=True, slots=True)
class Read:
    """One message as the hub stores it, and as Bob reads it."""

    message: Message
    ciphertext: bytes
    attachment: bytes | None = None
    attachment_ciphertext: bytes | None = None


async def read(world: World, hub: Running) -> list[Read]:
    """Let Bob read all messages; they must be those that Alice wrote."""
    found = []
    async with connected(world, hub, "bob") as link:
        stream = link.stream(STREAM)
        async for message in stream.read():
            plain = sealed = None
            if message.attachments:
                plain = await stream.attachment(message, 0)
                sealed = await link.fetch(message.attachments[0].coid)
            found.append(Read(message, message.msg.ciphertext, plain, sealed))
    if tuple(each.message.text for each in found) != TEXTS or found[ATTACHED_TO].attachment != ATTACHED:
        raise VerificationError("Bob does not read what Alice wrote")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The evidence that Bob takes away; it can be verified without the hub."""

    receipts: list[Receipt]
    checkpoint: Checkpoint
    inclusion: MmrProof
    consistency: MmrConsistency

    def files(self) -> dict[str, bytes]:
        found = {f"receipt-{each.stream_seq}.cbor": each.encode() for each in self.receipts}
        found["checkpoint.cbor"] = self.checkpoint.encode()
        found["proof-1.cbor"] = self.inclusion.encode()
        found["consistency-1-3.cbor"] = self.consistency.encode()
        return found


async def collect(world: World, hub: Running) -> Evidence:
    """Let the admin ask for a checkpoint, and Bob fetch it, the receipts and both proofs."""
    async with connected(world, hub, "admin") as link:
        key = world.person("admin").open(lambda: b"").signing_key
        await link.admin(key).checkpoint(link.stream(STREAM).label())
    async with connected(world, hub, "bob") as link:
        stream = link.stream(STREAM)
        checkpoint = await stream.checkpoint()
        if checkpoint is None:
            raise VerificationError("the hub did not make a checkpoint")
        last = checkpoint.upto_seq
        return Evidence(
            receipts=[await stream.receipt(seq) for seq in range(1, last + 1)],
            checkpoint=checkpoint,
            inclusion=await stream.proof(1, last),
            consistency=await stream.consistency(1, last),
        )


def verify(world: World, found: list[Read], evidence: Evidence) -> None:
    """Verify everything from bytes alone, as any verifier does without the hub."""
    identity, checkpoint = world.identity, evidence.checkpoint
    for each, receipt in zip(found, evidence.receipts, strict=True):
        hub_identity.verify_receipt(identity, receipt)
        if each.message.msg.leaf_hash != receipt.leaf_hash:
            raise VerificationError("a receipt is for another message")
    hub_identity.verify_checkpoint(identity, checkpoint, 0)
    first = evidence.receipts[0]
    verify_inclusion(
        evidence.inclusion, checkpoint.mmr_root, StreamSeq(1), first.leaf_hash, checkpoint.upto_seq
    )
    verify_consistency(evidence.consistency, first.mmr_root, checkpoint.mmr_root)


def keep(world: World, evidence: Evidence) -> list[Path]:
    """Write the evidence to files for ``veen verify``."""
    world.evidence.mkdir()
    files = {"hub-identity.cbor": world.identity.encode(), **evidence.files()}
    for name, content in files.items():
        (world.evidence / name).write_bytes(content)
    return [world.evidence / name for name in files]
