"""Cases on which the page and ``veen verify`` must give the same verdict: vectors, evidence, mutations."""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.hub_identity import HubIdentity, HubKey, key_id
from veen_core.ids import HubPk, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.stream import hub_id
from veen_core.tlog.note import COSIGNATURE, NoteKey

PACKAGES = Path(__file__).resolve().parents[3]
VECTORS = (PACKAGES / "veen-core/tests/vectors", PACKAGES / "veen-overlays/tests/vectors")
MAX_FLIPPED_BYTES = 4
LATE = 2**40
"""A time long after every receipt of the corpus, in seconds."""


@dataclass
class Case:
    """Files that are verified together."""

    name: str
    files: dict[str, bytes]
    trust: bytes | None = None
    policy: str | None = None
    expect: list[dict[str, Any]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        files = [{"name": name, "hex": content.hex()} for name, content in self.files.items()]
        trust = self.trust.hex() if self.trust is not None else None
        return {
            "name": self.name,
            "files": files,
            "trust": trust,
            "policy": self.policy,
            "expect": self.expect,
        }


def vectors() -> Iterator[Case]:
    """Every vector that has bytes, with the hub that its context names."""
    for folder in sorted(each.parent for root in VECTORS for each in root.glob("**/wire.hex")):
        context_file = folder / "context.json"
        context = json.loads(context_file.read_text()) if context_file.exists() else {}
        data = bytes.fromhex((folder / "wire.hex").read_text())
        name = f"vectors/{folder.parent.name}/{folder.name}"
        if folder.parent.name == "bundle":
            yield from _bundle(name, data, context)
            continue
        files = {f"{folder.parent.name}.cbor": data}
        trust = context.get("pinned")
        if "hub_pk" in context:
            identity = _identity(HubPk(bytes.fromhex(context["hub_pk"])))
            trust = identity.hub_id.hex()
            files["hub-identity.cbor"] = identity.encode()
        elif "identity" in context:
            files["hub-identity.cbor"] = bytes.fromhex(context["identity"])
            trust = HubIdentity.decode(files["hub-identity.cbor"]).hub_id.hex()
        yield Case(name, files, bytes.fromhex(trust) if trust else None, context.get("policy"))


def _identity(hub_pk: HubPk) -> HubIdentity:
    key = HubKey(key_id=key_id(hub_pk), hub_pk=hub_pk, valid_from=UnixTime(1))
    return HubIdentity(hub_id=hub_id(hub_pk), hub_keys=(key,))


def _bundle(name: str, data: bytes, context: dict[str, Any]) -> Iterator[Case]:
    """The parts of a bundle, one file each."""
    files, at = {}, 0
    for number, size in enumerate(context["sizes"], 1):
        files[f"part-{number}.veenb"] = data[at : at + size]
        at += size
    yield Case(name, files, bytes.fromhex(context["pinned"]), context.get("policy"))


def evidence(root: Path, trust: bytes, policy: str) -> list[Case]:
    """Real evidence, as a person would give it: each kind alone and with what it needs."""
    held = {path.name: path.read_bytes() for path in sorted((root / "evidence").iterdir())}
    identity = {"hub-identity.cbor": held["hub-identity.cbor"]}

    def some(*names: str) -> dict[str, bytes]:
        return {name: held[name] for name in names} | identity

    bundle = {path.name: path.read_bytes() for path in sorted((root / "bundle").glob("*.veenb"))}
    exports = {
        form: {
            f"export/{path.name}": path.read_bytes() for path in sorted((root / f"export-{form}").iterdir())
        }
        for form in ("set", "chunks")
    }
    spaced = held["receipt-3.cbor"].hex(" ")
    split = _split_digits(held["receipt-3.cbor"].hex())
    return [
        Case("receipt", some("receipt-3.cbor"), trust),
        Case("receipt without a pin", some("receipt-3.cbor")),
        Case("receipt of another hub", some("receipt-3.cbor"), bytes(32)),
        Case("receipt without the keys", {"receipt-3.cbor": held["receipt-3.cbor"]}, trust),
        Case("proof", some("receipt-3.cbor", "receipt-8.cbor", "proof.cbor"), trust),
        Case("proof of a smaller tree", some("receipt-3.cbor", "receipt-4.cbor", "proof-4.cbor"), trust),
        Case("proof without its root", some("receipt-3.cbor", "proof.cbor"), trust),
        Case("consistency", some("receipt-4.cbor", "receipt-8.cbor", "consistency.cbor"), trust),
        Case("hub evidence", {"message.evidence": held["message.evidence"]}, trust, policy),
        Case("hub evidence without a policy", {"message.evidence": held["message.evidence"]}, trust),
        Case("hub evidence without a pin", {"message.evidence": held["message.evidence"]}),
        Case("hub evidence by the policy", {"message.evidence": held["message.evidence"]}, None, policy),
        Case("hub checkpoint", some("checkpoint.note"), trust, policy),
        Case("hub checkpoint without a policy", some("checkpoint.note"), trust),
        Case("chunk", some("chunk.log"), trust),
        Case("message", some("message.cbor"), trust),
        Case("card", some("card.pub"), trust),
        Case("token", some("token.cap"), trust),
        Case("bundle", bundle, trust, policy),
        Case("export as a set", exports["set"], trust),
        Case("export as chunks", exports["chunks"], trust),
        Case("export with a policy", exports["set"], trust, policy),
        Case("export with a policy of other witnesses", exports["chunks"], trust, _other_witness(policy)),
        Case("everything", held, trust, policy),
        *_orders(held, trust),
        Case("hex text with spaces between bytes", {"receipt.txt": spaced.encode()} | identity, trust),
        Case("hex text with a space in a byte", {"receipt.txt": split.encode()} | identity, trust),
    ]


def _other_witness(policy: str) -> str:
    """Return a policy that wants the cosignature of a witness that does not know the hub's log."""
    key = SigningKey(SigningSeed(bytes(32)))
    witness = NoteKey(name="carol.example/w", kind=COSIGNATURE, public=key.public).text
    return f"{policy.splitlines()[0]}\nwitness carol {witness}\nquorum carol\n"


def _split_digits(text: str) -> str:
    """Return hexadecimal text with a space between the two digits of its second byte."""
    return f"{text[:3]} {text[3:]}"


def _orders(held: dict[str, bytes], trust: bytes) -> Iterator[Case]:
    """Evidence and a hub-identity with another valid_from, in both orders: the verdicts must not differ."""
    identity = HubIdentity.decode(held["hub-identity.cbor"])
    later = dataclasses.replace(identity.hub_keys[0], valid_from=UnixTime(LATE))
    other = dataclasses.replace(identity, hub_keys=(later, *identity.hub_keys[1:])).encode()
    files = {"message.evidence": held["message.evidence"], "hub-identity.cbor": other}
    yield Case("hub evidence before another hub-identity", files, trust)
    yield Case("hub evidence after another hub-identity", dict(reversed(files.items())), trust)
    everything = {name: held[name] for name in reversed(held)}
    yield Case("everything in reverse order", everything, trust)


def mutations(cases: Iterable[Case], count: int, seed: int) -> Iterator[Case]:
    """Return ``count`` cases with one file changed, spread over the cases and the kinds of change."""
    draw, chosen = random.Random(seed), list(cases)  # noqa: S311 - for the same corpus again
    kinds = [flip, flip, flip, cut, swap, double, drop_piece, rewrite_integer, duplicate_key]
    for number in range(count):
        case, change = chosen[number % len(chosen)], draw.choice(kinds)
        filled = [name for name, content in case.files.items() if content]
        others = [name for name in filled if not name.endswith("hub-identity.cbor")]
        name = draw.choice(others if draw.random() < 0.8 and others else filled)
        files = dict(case.files)
        files[name] = change(files[name], draw)
        yield Case(f"{case.name}: {change.__name__} {number} of {name}", files, case.trust, case.policy)


FILES = {
    "receipt": "receipt-3.cbor",
    "proof": "proof.cbor",
    "consistency": "consistency.cbor",
    "vectors/checkpoint/seven_items": "checkpoint.cbor",
    "vectors/checkpoint/eight_items": "checkpoint.cbor",
    "hub checkpoint": "checkpoint.note",
    "hub evidence": "message.evidence",
    "vectors/equivocation/": "equivocation.cbor",
    "vectors/hub_log_fork/": "hub_log_fork.cbor",
    "vectors/label_fork/": "label_fork.cbor",
    "bundle": ".veenb",
    "vectors/bundle/": "part-",
    "export as a set": "manifest.cbor",
    "export as chunks": "manifest.cbor",
    "export with a policy of other witnesses": "chunk-",
    "query full": "result.veenq",
}
"""The files that the verifier page names: the case that decides each, or its start, and part of its name."""
DECIDED = (
    *("RECEIPT", "mmr_proof", "mmr_consistency", "CHECKPOINT", "hub checkpoint", "hub evidence"),
    *("equivocation", "hub log fork", "label fork", "bundle", "export", "query result"),
)
"""Kinds of evidence for which the corpus must have a case that holds and a case that fails."""


def of_each_file(cases: Iterable[Case], count: int, seed: int) -> Iterator[Case]:
    """Return ``count`` cases for each of ``FILES``, in which that file is changed."""
    held, draw = list(cases), random.Random(seed)  # noqa: S311 - for the same corpus again
    for start, part in FILES.items():
        chosen = [
            case for case in held if case.name == start or (start[-1] == "/" and case.name.startswith(start))
        ]
        for number in range(count):
            case = draw.choice(chosen)
            name = draw.choice([name for name in case.files if part in name])
            change = draw.choice([flip, flip, flip, swap, double, drop_piece, rewrite_integer])
            files = case.files | {name: change(case.files[name], draw)}
            yield Case(f"{case.name}: {change.__name__} of {name} {number}", files, case.trust, case.policy)


def undecided(cases: Iterable[Case]) -> list[str]:
    """Return the kinds of ``DECIDED`` without a case that holds, or without a case that fails."""
    found = {(each["kind"], each["holds"]) for case in cases for each in case.expect}
    return [kind for kind in DECIDED if not {(kind, True), (kind, False)} <= found]


def flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randint(1, MAX_FLIPPED_BYTES) if draw.random() < 0.2 else 1):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data))]


def swap(data: bytes, draw: random.Random) -> bytes:
    """Swap two pieces of the same size."""
    size = draw.choice([1, 8, 32, 64])
    if len(data) < 2 * size:
        return flip(data, draw)
    a = draw.randrange(len(data) - 2 * size + 1)
    b = draw.randrange(a + size, len(data) - size + 1)
    return data[:a] + data[b : b + size] + data[a + size : b] + data[a : a + size] + data[b + size :]


def double(data: bytes, draw: random.Random) -> bytes:
    """Repeat a piece, or the whole file."""
    if draw.random() < 0.3:
        return data + data
    a = draw.randrange(len(data))
    b = draw.randrange(a, min(len(data), a + 64)) + 1
    return data[:b] + data[a:b] + data[b:]


def drop_piece(data: bytes, draw: random.Random) -> bytes:
    a = draw.randrange(len(data))
    return data[:a] + data[a + draw.choice([1, 2, 32, 64]) :]


def rewrite_integer(data: bytes, draw: random.Random) -> bytes:
    """Write one short head in a longer form: the same value, not canonical (B3)."""
    heads = [at for at in _heads(data) if data[at] & 31 < 24]
    if not heads:
        return flip(data, draw)
    at = draw.choice(heads)
    return data[:at] + bytes([data[at] & 0xE0 | 24, data[at] & 31]) + data[at + 1 :]


def duplicate_key(data: bytes, draw: random.Random) -> bytes:
    """Give a map one more pair: a copy of its first pair."""
    maps = [at for at in _heads(data) if 0xA1 <= data[at] < 0xB7]
    if not maps:
        return flip(data, draw)
    at = draw.choice(maps)
    end = cbor.item_end(data, cbor.item_end(data, at + 1))
    return data[:at] + bytes([data[at] + 1]) + data[at + 1 : end] + data[at + 1 :]


def _heads(data: bytes) -> list[int]:
    """Return where the items begin, if the file is one CBOR item; none for other files."""
    try:
        if cbor.item_end(data) != len(data):
            return []
    except DecodeError:
        return []
    heads, at = [], 0
    while at < len(data):
        heads.append(at)
        major, info = data[at] >> 5, data[at] & 31
        size = 0 if info < 24 else 1 << (info - 24)
        value = info if info < 24 else int.from_bytes(data[at + 1 : at + 1 + size], "big")
        at += 1 + size + (value if major in (2, 3) else 0)
    return heads
