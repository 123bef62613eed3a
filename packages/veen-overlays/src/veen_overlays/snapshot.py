"""Snapshots: the hash of a state after a prefix, to publish and to verify (spec-3 §7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from veen_core import cbor
from veen_core.errors import VerificationError
from veen_core.hashing import u64be
from veen_core.ids import FixedBytes, MmrRoot, StreamSeq
from veen_overlays.fold.event import Event
from veen_overlays.fold.monoid import LWW, StampedValue, map_of
from veen_overlays.fold.overlay import Overlay, StateHash, Summary
from veen_overlays.fold.table import table_of_records
from veen_overlays.schema.record import Record, record


class StateId(FixedBytes):
    """The id of a logical state, such as an account or a stream (spec-3 7.2)."""

    __slots__ = ()


@record("state.checkpoint.v1", section="spec-3 7.2", operation=True)
@dataclass(frozen=True, slots=True, kw_only=True)
class StateCheckpoint(Record):
    """Publish the hash of a state after a prefix of its log."""

    state_id: StateId
    upto_stream_seq: StreamSeq
    mmr_root: MmrRoot
    state_hash: StateHash
    state_class: str
    metadata: Any | None = None


def snapshot(
    overlay: Overlay[Any], summary: Summary[Any], state_id: StateId, upto_seq: int, mmr_root: MmrRoot
) -> StateCheckpoint:
    """The snapshot record of a folded prefix."""
    return StateCheckpoint(
        state_id=state_id,
        upto_stream_seq=StreamSeq(upto_seq),
        mmr_root=mmr_root,
        state_hash=overlay.state_hash(summary),
        state_class=overlay.name,
    )


def verify_snapshot(
    claimed: StateCheckpoint, overlay: Overlay[Any], summary: Summary[Any], upto_seq: int, mmr_root: MmrRoot
) -> None:
    """Raise unless the snapshot names this overlay, prefix, root and state (spec-3 7.2, 7.4, S2)."""
    if claimed.state_class != overlay.name:
        raise VerificationError(
            f"snapshot: state_class is {claimed.state_class!r}, not {overlay.name!r} (spec-3 7.2)"
        )
    if claimed.upto_stream_seq != upto_seq:
        raise VerificationError(
            f"snapshot: upto_stream_seq is {claimed.upto_stream_seq}, not {upto_seq} (spec-3 7.2)"
        )
    if claimed.mmr_root != mmr_root:
        raise VerificationError(f"snapshot: mmr_root differs from the log's root at {upto_seq} (spec-3 S2)")
    if claimed.state_hash != overlay.state_hash(summary):
        raise VerificationError(
            f"snapshot: state_hash differs from the hash of the state at {upto_seq} (spec-3 7.4, S2)"
        )


def _lift(event: Event) -> Mapping[bytes, StampedValue | None]:
    claimed = event.record
    assert isinstance(claimed, StateCheckpoint)
    key = claimed.state_id + u64be(claimed.upto_stream_seq) + claimed.state_class.encode()
    return {key: (event.stamp(0), claimed.encode())}


def _published(state: Mapping[bytes, StampedValue | None]) -> list[Any]:
    return [cbor.decode(written[1]) for key in sorted(state) if (written := state[key]) is not None]


SNAPSHOTS: Overlay[Mapping[bytes, StampedValue | None]] = Overlay(
    name="state.checkpoints",
    title="Published snapshots: the latest one for each state, class and prefix (spec-3 S1).",
    schemas=(StateCheckpoint,),
    monoid=map_of(LWW),
    lift=_lift,
    view=_published,
    table=table_of_records(StateCheckpoint),
)

OVERLAYS = (SNAPSHOTS,)
