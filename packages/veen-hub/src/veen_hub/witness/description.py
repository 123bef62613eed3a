"""The description of a witness's logs: the answer of ``/logs`` and of ``veen witness status``."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from veen_core.tlog.note import NoteKey
from veen_hub.witness.state import KeptContradiction, WitnessState, origin_hash


def describe(key: NoteKey, watched: Collection[str], state: WitnessState) -> dict[str, Any]:
    """Return each log with its newest cosigned checkpoint and its contradictions."""
    origins = {*watched, *state.heads, *state.contradictions}
    return {
        "witness": key.text,
        "logs": [_describe_log(origin, origin in watched, state) for origin in sorted(origins)],
    }


def _describe_log(origin: str, watched: bool, state: WitnessState) -> dict[str, Any]:
    cosigned = state.heads.get(origin)
    found = state.contradictions.get(origin, {}).values()
    return {
        "origin": origin,
        "hash": origin_hash(origin).hex(),
        "watched": watched,
        "size": cosigned.signed.head.size if cosigned is not None else None,
        "root": cosigned.signed.head.root.hex() if cosigned is not None else None,
        "cosigned_at": cosigned.cosigned_at if cosigned is not None else None,
        "contradictions": [_describe_contradiction(each) for each in found],
    }


def _describe_contradiction(kept: KeptContradiction) -> dict[str, Any]:
    return {
        "id": kept.found.id,
        "claim": kept.found.claim,
        "is_evidence": kept.found.is_evidence,
        "sizes": [signed.head.size for signed in kept.heads],
        "seen_at": kept.found.seen_at,
    }
