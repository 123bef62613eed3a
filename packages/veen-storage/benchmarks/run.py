"""Measure the speed of veen-storage as ratios within one run; print one JSON line per figure.

    python packages/veen-storage/benchmarks/run.py            10^6 entries, 10^5 labels; some minutes
    python packages/veen-storage/benchmarks/run.py --quick    5·10^4 entries, 10^4 labels; about a minute

``storage.proof_growth`` measures proofs from the cache, ``storage.proof_growth_cold`` new proofs, which have
twice as many hashes. A ratio divides the time of a subject by the time of a yardstick: both run in turns.
A figure of growth is the median of the rounds' ratios; ``storage.append`` divides the fastest rounds.
``--directory`` chooses the disk.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from veen_core import DEFAULT_PROFILE, H, SigningKey, SigningSeed
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.ciphertext import Binding
from veen_core.hub_identity import HubIdentity
from veen_core.ids import ClientId, ClientSeq, CtHash, Label, LeafHash, Signature, StreamSeq, UnixTime
from veen_core.keys import verify
from veen_core.msg import Msg, sign_msg
from veen_core.tlog.note import Note, sign_note
from veen_storage.fsck import fsck
from veen_storage.store import Store, create

HUB = SigningKey(SigningSeed(b"\x01" * 32))
WRITER = SigningKey(SigningSeed(b"\x02" * 32))
NOW = UnixTime(1_800_000_000)
BATCH = 256


class NoSignature:
    """A signer whose receipts cost nothing, since signatures are excluded from the append figure."""

    def __init__(self, identity: HubIdentity) -> None:
        self.identity = identity

    def sign_receipt(self, _digest: bytes, _now: UnixTime) -> Signature:
        return Signature(bytes(64))

    def expect_receipts(self, _digests: list[bytes], _now: UnixTime) -> None:
        pass

    def sign_receipts(self, digests: list[bytes], _now: UnixTime) -> list[Signature]:
        return [Signature(bytes(64))] * len(digests)

    def sign_checkpoint(self, unsigned: Checkpoint, _now: UnixTime) -> Checkpoint:
        return sign_checkpoint(HUB, unsigned)

    def sign_note(self, text: str, name: str, _now: UnixTime) -> Note:
        return Note(text, (sign_note(HUB, name, text),))


@dataclass(frozen=True)
class Sizes:
    """Sizes of the logs in a run, in entries or labels."""

    many: int
    few: int
    open_few: int
    labels: int
    fsck: int


FULL = Sizes(many=1_000_000, few=1_000, open_few=10_000, labels=100_000, fsck=200_000)
TINY = Sizes(many=900, few=100, open_few=300, labels=40, fsck=300)
QUICK = Sizes(many=50_000, few=1_000, open_few=10_000, labels=10_000, fsck=30_000)


def messages(label: Label, count: int, body: bytes, start: int = 1) -> Iterator[tuple[Msg, bytes, LeafHash]]:
    ct_hash, client = CtHash(H(body)), ClientId(WRITER.public)
    for seq in range(start, start + count):
        msg = Msg(
            profile_id=DEFAULT_PROFILE.profile_id,
            label=label,
            client_id=client,
            client_seq=ClientSeq(seq),
            prev_ack=StreamSeq(0),
            auth_ref=None,
            ct_hash=ct_hash,
            ciphertext=body,
            sig=Signature(bytes(64)),
        )
        yield msg, msg.encode(), msg.leaf_hash


def label_no(number: int) -> Label:
    return Label(H(number.to_bytes(8, "big")))


def fill(store: Store, prepared: list[tuple[Msg, bytes, LeafHash]]) -> None:
    for at in range(0, len(prepared), BATCH):
        batch = store.batch(UnixTime(NOW + at // BATCH))
        for msg, wire, leaf in prepared[at : at + BATCH]:
            batch.add(msg, wire, leaf)
        store.commit(batch)


def make(root: Path, entries: int = 0, labels: int = 0) -> Path:
    """Create a directory with one long label or many short ones, in parts, to bound memory."""
    create(root, HUB, UnixTime(0))
    body = os.urandom(128)
    with Store(root) as store:
        for start in range(1, entries + 1, 50_000):
            fill(store, list(messages(label_no(0), min(50_000, entries + 1 - start), body, start)))
        for start in range(0, labels, 20_000):
            numbers = range(start, min(labels, start + 20_000))
            fill(store, [next(messages(label_no(n), 1, body)) for n in numbers])
    return root


def ratio(subject: Callable[[], object], yardstick: Callable[[], object], rounds: int) -> float:
    """Return the median over rounds of the subject's time per that of the yardstick.

    A round runs both, one right after the other, so that both meet the same load of the machine. Dividing
    the fastest round of each would compare moments that may be seconds apart.
    """
    return statistics.median(_timed(subject) / _timed(yardstick) for _ in range(rounds))


def _timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


# --- the figures


def append(root: Path, sizes: Sizes) -> float:
    """Return the time to append and apply one 1 KiB MSG in batches of 256, per Ed25519 verification."""
    per_round, rounds = min(32, sizes.many // 400), 12
    identity = create(root, HUB, UnixTime(0))
    prepared = list(messages(label_no(0), BATCH * per_round * rounds, os.urandom(1_024)))
    digest = H(b"")
    signature = HUB.sign(digest)
    best_entry = best_verify = float("inf")
    with Store(root, signer=NoSignature(identity)) as store:
        for number in range(rounds):
            part = prepared[number * BATCH * per_round : (number + 1) * BATCH * per_round]
            elapsed = _timed(lambda part=part: (fill(store, part), store.settle()))  # type: ignore[misc]
            best_entry = min(best_entry, elapsed / len(part))
            verified = _timed(lambda: [verify(HUB.public, digest, signature, "") for _ in range(500)])
            best_verify = min(best_verify, verified / 500)
    return best_entry / best_verify


def read_growth(
    large: Store, small: Store, sizes: Sizes, read: Callable[[Store, int], object], *, cold: bool = False
) -> float:
    """Return the time of random reads in a long label per that in a short one; ``cold``: no cached proofs."""
    draw = random.Random(7)  # noqa: S311 - positions, not secrets
    count = min(200, sizes.few // 5)
    deep = [draw.randrange(1, sizes.many + 1) for _ in range(count)]
    shallow = [draw.randrange(1, sizes.few + 1) for _ in range(count)]

    def read_all(store: Store, seqs: list[int]) -> None:
        if cold:
            store.read.proofs.clear()
        for seq in seqs:
            read(store, seq)

    return ratio(lambda: read_all(large, deep), lambda: read_all(small, shallow), rounds=25)


def read_receipt(store: Store, seq: int) -> object:
    return store.read.receipt(label_no(0), StreamSeq(seq))


def read_proof(store: Store, seq: int) -> object:
    head = store.read.head(label_no(0))
    assert head is not None
    return store.read.proof(label_no(0), StreamSeq(seq), head.stream_seq)


def read_page(store: Store, seq: int) -> object:
    head = store.read.head(label_no(0))
    assert head is not None
    return store.read.entries(label_no(0), StreamSeq(min(seq, head.stream_seq - 99)), 100)


def open_growth(large: Path, small: Path) -> float:
    return ratio(lambda: Store(large).close(), lambda: Store(small).close(), rounds=40)


def resident_mb(root: Path, labels: int) -> float:
    """Return the resident memory of a process that opens the directory, reads all of it and appends."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_report_resident_mb, args=(root, labels, queue))
    process.start()
    resident: float = queue.get()
    process.join()
    return resident


def _report_resident_mb(root: Path, labels: int, queue: multiprocessing.Queue[float]) -> None:
    draw = random.Random(11)  # noqa: S311 - positions, not secrets
    with Store(root) as store:
        body = os.urandom(128)
        for number in range(labels):
            label = label_no(number)
            head = store.read.head(label)
            size = head.stream_seq if head is not None else 0
            for _ in range(max(1, 20_000 // labels)):
                store.read.proof(label, StreamSeq(draw.randrange(1, size + 1)), StreamSeq(size))
        for number in range(0, labels, BATCH):
            heads = [
                (label_no(n), store.read.head(label_no(n)))
                for n in range(number, min(labels, number + BATCH))
            ]
            fill(store, [next(messages(lb, 1, body, h.stream_seq + 1)) for lb, h in heads if h is not None])
        store.settle()
        status = Path("/proc/self/status").read_text(encoding="ascii")
    kilobytes = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
    queue.put(kilobytes / 1_024)


def fsck_share(root: Path, sizes: Sizes) -> float:
    """Return the speed of a full fsck as a share of verifying two signatures an entry on all cores."""
    create(root, HUB, UnixTime(0))
    with Store(root) as store:
        for at in range(0, sizes.fsck, BATCH):
            batch = store.batch(NOW)
            for seq in range(at + 1, min(sizes.fsck, at + BATCH) + 1):
                msg = signed(seq)
                batch.add(msg, msg.encode(), msg.leaf_hash)
            store.commit(batch)
    cores = len(os.sched_getaffinity(0))
    shares, before = [], verification_limit(cores, 1)
    for _ in range(3):  # each next to its own yardstick, because machine speed varies
        elapsed = _timed(lambda: fsck(root, level="full", processes=cores))
        after = verification_limit(cores, elapsed / 2)
        shares.append(sizes.fsck / elapsed / ((before + after) / 2 / 2))
        before = after
    return statistics.median(shares)


def verification_limit(cores: int, seconds: float) -> float:
    """Return how many signatures all cores verify per second together."""
    with ProcessPoolExecutor(cores) as pool:
        list(pool.map(verified_per_second, [0.01] * cores))  # starts the processes and their imports
        return sum(pool.map(verified_per_second, [seconds] * cores))


def verified_per_second(seconds: float) -> float:
    """Return how many different signatures one process verifies per second; equal ones are 5 % faster."""
    signatures = [(digest, HUB.sign(digest)) for digest in (H(bytes([n])) for n in range(250))]
    began, count = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - began) < seconds:
        for digest, signature in signatures:
            verify(HUB.public, digest, signature, "")
        count += len(signatures)
    return count / elapsed


def signed(seq: int) -> Msg:
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=label_no(0),
        client_id=ClientId(WRITER.public),
        client_seq=ClientSeq(seq),
        prev_ack=StreamSeq(0),
    )
    sealed = bytes(32) + (16).to_bytes(4, "big") + (984).to_bytes(4, "big") + bytes([seq % 251]) * 1_000
    return sign_msg(WRITER, binding, sealed)


def say(name: str, value: float, target: float, ok: bool) -> bool:
    print(json.dumps({"name": name, "value": round(value, 3), "target": target, "ok": ok}), flush=True)  # noqa: T201
    return ok


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="run with smaller logs, in about a minute")
    parser.add_argument("--tiny", action="store_true", help="run with tiny logs, only to test this program")
    parser.add_argument("--directory", type=Path, help="folder for the logs that are measured")
    options = parser.parse_args()
    sizes = TINY if options.tiny else QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(dir=options.directory) as place:
        return 0 if measure(Path(place), sizes) else 1


def measure(place: Path, sizes: Sizes) -> bool:
    ok = say("storage.append", value := append(place / "append", sizes), 0.6, value <= 0.6)
    large = make(place / "large", entries=sizes.many)
    with Store(large) as deep, Store(make(place / "small", entries=sizes.few)) as shallow:
        for name, read in (("receipt", read_receipt), ("proof", read_proof), ("page", read_page)):
            value = read_growth(deep, shallow, sizes, read)
            ok &= say(f"storage.{name}_growth", value, 1.3, value <= 1.3)
        value = read_growth(deep, shallow, sizes, read_proof, cold=True)
        say("storage.proof_growth_cold", value, 1.3, value <= 1.3)
    value = open_growth(large, make(place / "open", entries=sizes.open_few))
    ok &= say("storage.open_growth", value, 1.5, value <= 1.5)
    value = resident_mb(large, 1)
    ok &= say("storage.rss_entries_mb", value, 250, value < 250)
    value = resident_mb(make(place / "labels", labels=sizes.labels), sizes.labels)
    ok &= say("storage.rss_labels_mb", value, 250, value < 250)
    value = fsck_share(place / "fsck", sizes)
    return ok & say("storage.fsck", value, 0.6, value >= 0.6)


if __name__ == "__main__":
    sys.exit(main())
