"""Write long histories into a data directory while no hub runs, as ``hub.growth`` and ``hub.growth7`` need.

The directory is what a hub leaves: every MSG and every RECEIPT is signed with the real keys, and each batch
takes the hub's own way through ``Store.commit``: journal, chunk files, checkpoints, index. Two things are
left out: HTTP, and the verification of messages that this program has just signed. A second process signs
the messages, so that ten million take minutes.
"""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Iterator
from multiprocessing.pool import AsyncResult, Pool
from pathlib import Path
from typing import NamedTuple

from veen_core import DEFAULT_PROFILE, H, SigningKey, SigningSeed
from veen_core.ciphertext import Binding
from veen_core.ids import AuthRef, ClientId, ClientSeq, Label, LeafHash, StreamSeq, UnixTime
from veen_core.msg import sign_msg
from veen_storage import Store

HISTORY_TIME = UnixTime(1_800_000_000)
MESSAGES_PER_BATCH = 2_048
MESSAGES_PER_RUN = 512
RUNS_AHEAD = 16
SEALED = H(b"enc") + (16).to_bytes(4, "big") + (144).to_bytes(4, "big") + 5 * H(b"never opened")


class WrittenMsg(NamedTuple):
    """What the store needs of a message that the other process has signed."""

    label: Label
    client_id: ClientId
    client_seq: ClientSeq
    wire: bytes
    leaf: LeafHash
    auth_ref: AuthRef | None = None


class MessageRun(NamedTuple):
    """Consecutive messages of one writer in one label."""

    seed: bytes
    label: Label
    first: int
    count: int

    def sign(self) -> list[tuple[bytes, bytes]]:
        """Return encoding and leaf of each message."""
        key = SigningKey(SigningSeed(self.seed))
        signed = []
        for seq in range(self.first, self.first + self.count):
            binding = Binding(
                profile_id=DEFAULT_PROFILE.profile_id,
                label=self.label,
                client_id=ClientId(key.public),
                client_seq=ClientSeq(seq),
                prev_ack=StreamSeq(0),
                auth_ref=None,
            )
            msg = sign_msg(key, binding, SEALED)
            signed.append((msg.encode(), bytes(msg.leaf_hash)))
        return signed


def fill(root: Path, labels: list[Label], each: int, seed: bytes) -> None:
    """Append ``each`` messages of one writer to every label."""
    runs = [
        MessageRun(seed, label, first, min(MESSAGES_PER_RUN, each - first + 1))
        for label in labels
        for first in range(1, each + 1, MESSAGES_PER_RUN)
    ]
    with (
        multiprocessing.get_context("fork").Pool(1) as signer,
        Store(root) as store,
    ):  # forked without threads
        batch = store.batch(HISTORY_TIME)
        for msg in _signed_ahead(signer, seed, runs):
            batch.add(msg, msg.wire, msg.leaf)
            if batch.length >= MESSAGES_PER_BATCH:
                store.commit(batch)
                batch = store.batch(HISTORY_TIME)
        store.commit(batch)


def _signed_ahead(signer: Pool, seed: bytes, runs: list[MessageRun]) -> Iterator[WrittenMsg]:
    """Yield the messages of all runs; at most ``RUNS_AHEAD`` tasks of the signer wait in memory."""
    writer = ClientId(SigningKey(SigningSeed(seed)).public)
    per_task = max(1, MESSAGES_PER_RUN // runs[0].count)
    tasks = [runs[at : at + per_task] for at in range(0, len(runs), per_task)]
    posted: deque[AsyncResult[list[list[tuple[bytes, bytes]]]]] = deque()
    for at, task in enumerate(tasks):
        for later in tasks[at + len(posted) : at + RUNS_AHEAD]:
            posted.append(signer.apply_async(_sign_all, (later,)))
        for run, messages in zip(task, posted.popleft().get(), strict=True):
            for seq, (wire, leaf) in enumerate(messages, run.first):
                yield WrittenMsg(run.label, writer, ClientSeq(seq), wire, LeafHash(leaf))


def _sign_all(runs: list[MessageRun]) -> list[list[tuple[bytes, bytes]]]:
    return [run.sign() for run in runs]
