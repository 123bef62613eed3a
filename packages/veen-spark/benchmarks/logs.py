"""Logs for the benchmarks: chunk files as a hub writes them, made with veen_core alone.

Messages and receipts are signed and roots are computed, so that verifying such a log is real work. All labels
have the same number of entries.
"""

from __future__ import annotations

import multiprocessing
import shutil
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from veen_core import (
    DEFAULT_LIMITS,
    DEFAULT_PROFILE,
    Binding,
    ClientId,
    H,
    Label,
    Mmr,
    SigningKey,
    SigningSeed,
)
from veen_core import hub_identity as identities
from veen_core.chunk import chunk_name, encode_peaks, peaks_name, rolls
from veen_core.ciphertext import leaf_hash
from veen_core.entry import Entry
from veen_core.ids import ClientSeq, CtHash, HubPk, StreamSeq, UnixTime
from veen_core.msg import sign_msg
from veen_core.receipt import signed_bytes, unsigned_bytes
from veen_core.registry import Registry

HUB, WRITER = SigningKey(SigningSeed(b"\x05" * 32)), SigningKey(SigningSeed(b"\x06" * 32))
BORN = UnixTime(1_700_000_000)
LABELS = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The number of entries and labels of a log."""

    entries: int
    labels: int = LABELS
    body: int = 256

    @property
    def entries_per_label(self) -> int:
        return self.entries // self.labels


def label_no(number: int) -> Label:
    return Label(H(b"label" + number.to_bytes(8, "big")))


def ciphertext(number: int, size: int) -> bytes:
    """Return a ciphertext with the layout of core §4.2; its content cannot be opened."""
    body = H(number.to_bytes(8, "big")) * (size // 32)
    return H(b"enc" + body[:32]) + struct.pack(">II", 0, len(body)) + body


def entries(number: int, count: int, size: int) -> Iterator[Entry]:
    """The log of one label."""
    label, tree, client = label_no(number), Mmr(), ClientId(WRITER.public)
    for seq in range(1, count + 1):
        binding = Binding(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=label,
            client_id=client,
            client_seq=ClientSeq(seq),
            prev_ack=StreamSeq(seq - 1),
            auth_ref=None,
        )
        sealed = ciphertext(seq, size)
        msg = sign_msg(WRITER, binding, sealed)
        leaf = leaf_hash(label, binding.profile_id, CtHash(H(sealed)), client, binding.client_seq)
        tree.add(leaf)
        unsigned = unsigned_bytes(label, StreamSeq(seq), leaf, tree.root, UnixTime(BORN + seq // 100))
        receipt = signed_bytes(unsigned, HUB.sign(H(b"veen/sig\0" + unsigned)))
        yield Entry(label, StreamSeq(seq), msg.encode(), receipt)


def write_label(folder: Path, number: int, count: int, size: int) -> None:
    """Write chunk files and peaks files under the names of core §4.8.3."""
    label, frames, held, tree, start = label_no(number), list[bytes](), 0, Mmr(), 1

    def finish(end: int) -> None:
        (folder / chunk_name(label, StreamSeq(start), StreamSeq(end))).write_bytes(b"".join(frames))
        (folder / peaks_name(label, StreamSeq(end))).write_bytes(encode_peaks(tree.peaks))

    for entry in entries(number, count, size):
        frame = entry.encode()
        if rolls(held, len(frames), len(frame), DEFAULT_LIMITS):
            finish(entry.stream_seq - 1)
            frames, held, start = [], 0, entry.stream_seq
        frames.append(frame)
        held += len(frame)
        tree.add(entry.receipt.leaf_hash)
    if frames:
        finish(count)


def once(root: Path, make: Callable[[Path], None]) -> Path:
    """Make ``root`` unless an earlier run completed it; an incomplete one is made again."""
    done = root.with_name(f"{root.name}.made")
    if not done.exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        make(root)
        done.touch()
    return root


def make(root: Path, shape: Shape) -> None:
    """Make a folder of chunk files with the hub's identity."""
    root.mkdir()
    identity = identities.new_identity(HUB, BORN)
    assert identity.hub_keys[0].hub_pk == HubPk(HUB.public)
    (root / "hub-identity.cbor").write_bytes(identity.encode())
    (root / "hub-identity.sig").write_bytes(identities.sign_identity(HUB, identity))
    (root / "registry.cbor").write_bytes(Registry(hub_id=identity.hub_id).encode())
    counts = repeat(shape.entries_per_label)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
        numbers = range(shape.labels)
        list(pool.map(write_label, repeat(root), numbers, counts, repeat(shape.body)))
