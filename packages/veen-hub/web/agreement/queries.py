"""Query results of every mode, and results in which one value was changed and the hashes made to fit."""

from __future__ import annotations

import dataclasses
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cases import Case

from veen_core.hashing import H
from veen_core.tlog.note import COSIGNATURE, NoteKey, cosign
from veen_overlays.query import QueryDescriptor, canonical_json
from veen_overlays.query.result.evidence import build_evidence
from veen_overlays.query.result.result_file import ResultFile, make_result

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "veen-overlays/tests"))
import query_logs
from query_logs import EXECUTION, Evidence, Hub, Stream, answer, identities, query, two_streams

PAYLOADS: tuple[Any, ...] = (
    {"n": 1, "text": 'a "quoted"\n\u2028 line \U0001f600', "deep": [1, [2, {"é": None}]]},
    {"big": 10**30, "half": 0.5, "tiny": 1e-7, "huge": 1e300, "whole": 2.0},
    {"": True, "list": [], "object": {}},
)


def queries(*names: str) -> dict[str, QueryDescriptor]:
    first, *_ = names
    return {
        "full": query(*names),
        "spot": query(*names, evidence={"mode": "spot", "sample_rate": 0.3}),
        "none": query(*names, evidence={"mode": "none"}),
        "aggregate": query(
            *names,
            projection=["receipt_id"],
            aggregate={"group_by": ["subject_id"], "metrics": ["count", "max(payload.n)"]},
        ),
        "sampled aggregate": query(
            *names, aggregate={"metrics": ["count"]}, evidence={"mode": "spot", "sample_rate": 0.3}
        ),
        "window": query(
            first,
            filter={
                "subject_id": "user:1",
                "event_type": ["login", "logout"],
                "time": {"from": "2025-11-18T21:06:42Z"},
                "where": {"origin": ["api-1", None, 7]},
            },
        ),
        "described": query(
            *names, projection=["payload.deep", "stream"], meta={"why": "audit", "n": [1.5, 2]}
        ),
    }


def made(descriptor: QueryDescriptor, streams: tuple[Stream, ...], *, linked: bool) -> ResultFile:
    links = {}
    if linked:
        links = {each.label: each.link(len(each.leaves), len(each.leaves)) for each in streams}
    found = answer(descriptor, *streams)
    coverage = tuple(
        dataclasses.replace(source, checkpoint=query_text(links[source.label]) if linked else None)
        for source in found.coverage
    )
    found = dataclasses.replace(found, coverage=coverage)
    evidence = build_evidence(descriptor, found, Evidence(streams, links), identities(streams))
    return make_result(descriptor, found, evidence, EXECUTION)


def query_text(link: Any) -> str:
    note: bytes = link.checkpoint
    return note.decode().rpartition("\n\n")[0] + "\n"


def results() -> list[tuple[Case, ResultFile]]:
    """Return results by name, with the pinned hub and with what else a verifier may have."""
    streams = two_streams()
    for payload in PAYLOADS:
        streams[0].add(payload=payload)
    pin, names = bytes(streams[0].hub.hub_id), [each.name for each in streams]
    found: list[tuple[Case, ResultFile]] = []
    for name, descriptor in queries(*names).items():
        covered = streams if len(descriptor.scope) > 1 else streams[:1]
        for linked in (False, True):
            file = made(descriptor, covered, linked=linked)
            title = f"query {name}{', with hub checkpoints' if linked else ''}"
            found.append((Case(title, {"result.veenq": file.encode()}, pin), file))
    plain = found[0][1]
    log = {
        "receipt.cbor": streams[0].receipts[2].encode(),
        "hub-identity.cbor": streams[0].hub.identity.encode(),
    }
    later = Stream(streams[0].name, streams[0].hub)
    for _ in range(40):
        later.add()
    newer = log | {"receipt.cbor": later.receipts[-1].encode()}
    files = {"result.veenq": plain.encode()}
    found += [
        (Case("query without a pin", files), plain),
        (Case("query of another hub", files, bytes(Hub(2).hub_id)), plain),
        (Case("query with a receipt held", files | log, pin), plain),
        (Case("query that ends before a receipt held", files | newer, pin), plain),
        *policies(found[1][1], pin),
    ]
    return found


def policies(file: ResultFile, pin: bytes) -> Iterator[tuple[Case, ResultFile]]:
    """A result whose hub checkpoints a witness cosigned, under policies that ask for it and for another."""
    keys = [query_logs.SigningKey(query_logs.SigningSeed(H(name))) for name in (b"alice", b"bob")]
    sources = []
    for source in file.evidence.sources:
        assert source.link is not None
        text = query_text(source.link)
        line = cosign(keys[0], "alice.example/w", text, query_logs.UnixTime(query_logs.START)).line
        link = dataclasses.replace(source.link, checkpoint=source.link.checkpoint + line.encode())
        sources.append(dataclasses.replace(source, link=link))
    evidence = dataclasses.replace(file.evidence, sources=tuple(sources))
    cosigned = dataclasses.replace(file, evidence=evidence)
    for name, key in zip(("alice", "bob"), keys, strict=True):
        vkey = NoteKey(f"{name}.example/w", COSIGNATURE, key.public).text
        policy = f"witness {name} {vkey}\nquorum {name}\n"
        yield (
            Case(f"query cosigned, {name} asked", {"result.veenq": cosigned.encode()}, pin, policy),
            cosigned,
        )


def changed(found: list[tuple[Case, ResultFile]], count: int, seed: int) -> Iterator[Case]:
    """Change one value in a result and, half of the time, make its hashes fit again."""
    draw = random.Random(seed)  # noqa: S311 - for the same corpus again
    for number in range(count):
        case, file = draw.choice(found)
        part = draw.choice(["descriptor_json", "digest_json", "rows_json", "rows_json", "evidence"])
        if part == "evidence":
            altered = change_evidence(file, draw)
        else:
            value = json.loads(getattr(file, part))
            alter(value, draw)
            altered = dataclasses.replace(file, **{part: write(value)})
        if draw.random() < 0.5:
            altered = refit(altered)
        files = dict(case.files) | {"result.veenq": altered.encode()}
        yield Case(f"{case.name}: {part} {number}", files, case.trust, case.policy)


def write(value: object) -> bytes:
    try:
        return canonical_json.encode(value)
    except Exception:  # noqa: BLE001 - what has no canonical form is a case too
        return json.dumps(value).encode()


def alter(value: Any, draw: random.Random) -> None:
    """Change one leaf, key or element somewhere inside an array or object."""
    inside = [each for each in _containers(value) if each]
    if not inside:
        return
    place = draw.choice(inside)
    key = draw.choice(list(place)) if isinstance(place, dict) else draw.randrange(len(place))
    action = draw.random()
    if action < 0.15:
        del place[key]
    elif action < 0.25 and isinstance(place, list):
        place.insert(key, place[key])
    elif action < 0.35 and isinstance(place, list):
        draw.shuffle(place)
    elif action < 0.4 and isinstance(place, dict):
        place["extra"] = 1
    else:
        place[key] = other(place[key], draw)


def other(value: Any, draw: random.Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return draw.choice([value + 1, max(0, value - 1), -value, 2**64, str(value), None])
        case float():
            return draw.choice([value / 2, value + 1, 1])
        case str() if value:
            at = draw.randrange(len(value))
            return draw.choice([value[:at] + "0" + value[at + 1 :], value[:-1], value.upper(), "", None, 7])
        case _:
            return draw.choice([0, "text", [], {}, None, True])


def _containers(value: Any) -> list[Any]:
    if not isinstance(value, dict | list):
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(found for each in inner for found in _containers(each))]


def change_evidence(file: ResultFile, draw: random.Random) -> ResultFile:
    """Drop, double or swap receipts or sources, or cut a proof."""
    sources = list(file.evidence.sources)
    at = draw.randrange(len(sources))
    source, receipts = sources[at], list(sources[at].receipts)
    match draw.randrange(6):
        case 0 if receipts:
            receipts.pop(draw.randrange(len(receipts)))
        case 1 if receipts:
            receipts.append(receipts[0])
        case 2:
            draw.shuffle(receipts)
        case 3:
            sources[at] = dataclasses.replace(source, proof=source.proof[:-32])
        case 4:
            sources[at] = dataclasses.replace(source, head=None)
        case _:
            draw.shuffle(sources)
    if sources[at] is source:
        sources[at] = dataclasses.replace(source, receipts=tuple(receipts))
    return dataclasses.replace(file, evidence=dataclasses.replace(file.evidence, sources=tuple(sources)))


def refit(file: ResultFile) -> ResultFile:
    """Make the hashes of the rows fit the rows, as an attacker who alters the rows would."""
    try:
        rows = [canonical_json.encode(row) for row in json.loads(file.rows_json)]
        digest = json.loads(file.digest_json)
        digest["rows_hash"] = H(b"[" + b",".join(rows) + b"]").hex()
        digest["row_count"] = len(rows)
        return dataclasses.replace(
            file,
            row_hashes=b"".join(map(H, rows)),
            rows_json=b"[" + b",".join(rows) + b"]",
            digest_json=canonical_json.encode(digest),
        )
    except Exception:  # noqa: BLE001 - rows that are none stay as they are
        return file
