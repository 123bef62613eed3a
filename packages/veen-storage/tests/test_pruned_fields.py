"""What binds the fields of a pruned entry: leaf, receipt, index; two changes remain unnoticed (ADR 0008)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from veen_core.chunk import PrunedEntry
from veen_core.hashing import H
from veen_core.ids import AuthRef, ClientId, ClientSeq, CtHash, EntryHash, StreamSeq
from veen_storage.chunks.pruned_chunk import encode_pruned, read_pruned_chunk
from veen_storage.chunks.retention import PruneRule
from veen_storage.copies.clone import clone
from veen_storage.fsck import fsck

from .conftest import MakeStore
from .sample import ORDERS, at, authorize, prune, send, token

Change = Callable[[PrunedEntry], PrunedEntry]


@pytest.fixture
def root(make_store: MakeStore) -> Path:
    """A closed directory whose first chunks are pruned."""
    store = make_store()
    authorize(store, token())
    send(store, ORDERS, 30, auth_ref=token().auth_ref)
    prune(store, ORDERS, PruneRule(max_age_sec=10), at(100))
    store.close()
    return store.layout.root


def change(root: Path, how: Change) -> None:
    path = min((root / "log").glob("*.pruned"))
    read = read_pruned_chunk(path)
    kept = [entry for _offset, entry in read.kept]
    path.write_bytes(encode_pruned(read.head, [*kept[:3], how(kept[3]), *kept[4:]]))


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda e: dataclasses.replace(e, auth_ref=AuthRef(H(b"x"))), id="auth_ref"),
        pytest.param(lambda e: dataclasses.replace(e, client_id=ClientId(H(b"x"))), id="client_id"),
        pytest.param(lambda e: dataclasses.replace(e, client_seq=ClientSeq(9)), id="client_seq"),
        pytest.param(lambda e: dataclasses.replace(e, ct_hash=CtHash(H(b"x"))), id="ct_hash"),
        pytest.param(lambda e: dataclasses.replace(e, entry_hash=EntryHash(H(b"x"))), id="entry_hash"),
        pytest.param(lambda e: dataclasses.replace(e, prev_ack=StreamSeq(99)), id="prev_ack ahead"),
    ],
)
def test_fsck_notices_a_changed_field_of_a_pruned_entry(root: Path, how: Change) -> None:
    assert fsck(root).faults == []
    change(root, how)
    assert fsck(root).faults != []


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(lambda e: dataclasses.replace(e, prev_ack=StreamSeq(1)), id="smaller prev_ack"),
        pytest.param(lambda e: dataclasses.replace(e, auth_ref=None), id="no auth_ref"),
    ],
)
def test_a_smaller_prev_ack_and_a_removed_auth_ref_are_the_documented_limit(
    root: Path, tmp_path: Path, how: Change
) -> None:
    """The leaf contains neither, and the MSG whose signature covers them is gone."""
    change(root, how)
    assert fsck(root).faults == []
    clone(root, tmp_path / "clone")
    assert fsck(tmp_path / "clone").faults == []
