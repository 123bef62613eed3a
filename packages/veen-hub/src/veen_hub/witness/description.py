"""What a witness shows about its logs: the answer of ``/logs`` and of ``veen witness status``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from veen_core.tlog.note import NoteKey
from veen_hub.witness.contradiction import LogContradiction
from veen_hub.witness.memory import Memory, origin_hash


def describe(key: NoteKey, watched: Collection[str], memory: Memory) -> dict[str, Any]:
    """Return each log with its newest cosigned checkpoint and its contradictions."""
    origins = {*watched, *memory.heads, *memory.contradictions}
    return {
        "witness": key.text,
        "logs": [_describe_log(origin, origin in watched, memory) for origin in sorted(origins)],
    }


def _describe_log(origin: str, watched: bool, memory: Memory) -> dict[str, Any]:
    cosigned = memory.heads.get(origin)
    found = list(memory.contradictions.get(origin, {}).values())
    return {
        "origin": origin,
        "hash": origin_hash(origin).hex(),
        "watched": watched,
        "size": cosigned.signed.head.size if cosigned is not None else None,
        "root": cosigned.signed.head.root.hex() if cosigned is not None else None,
        "cosigned_at": cosigned.cosigned_at if cosigned is not None else None,
        "contradictions": [_describe_contradiction(each) for each in found],
    }


def _describe_contradiction(found: LogContradiction) -> dict[str, Any]:
    return {
        "id": found.id,
        "claim": found.claim,
        "is_evidence": found.is_evidence,
        "sizes": [signed.head.size for signed in found.heads],
        "seen_at": found.seen_at,
    }
