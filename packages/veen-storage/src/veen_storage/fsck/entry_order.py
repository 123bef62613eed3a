"""The rules between consecutive entries of a label, and what each entry adds to a draft (core §7).

``label_fold`` uses them for entries in chunk files. They do not use core's ``LogVerifier``, which verifies
exports, so that the two can contradict each other: the tests check the same logs with both. They follow any
number of writers, because they look them up in the derived index. What they share with the writer is the
cursor and the draft; the tests' ``oracle.py`` shares neither.
"""

from __future__ import annotations

from veen_core.entry import FLAG_AUTHORIZE, Entry
from veen_core.errors import InvariantError
from veen_core.ids import AuthRef, ClientSeq
from veen_core.log_rules import ACKNOWLEDGED, CONSECUTIVE, POSITION, TIME, TOKEN, UNIQUE
from veen_storage.commit.changes import Placed
from veen_storage.commit.ledger import Draft
from veen_storage.commit.writer import note_msg
from veen_storage.fsck.entries import EntryFacts
from veen_storage.index.records import LabelCursor


def place_entry(draft: Draft, cursor: LabelCursor, fact: EntryFacts) -> list[InvariantError]:
    """Append an entry to its label; return the rules of time and root that it breaks (H3, I3)."""
    broken = []
    if fact.hub_ts < cursor.hub_ts:
        broken.append(TIME.broken(f"hub_ts goes back from {cursor.hub_ts} to {fact.hub_ts}", fact.seq))
    nodes = cursor.log.append(fact.leaf)
    if cursor.log.root != fact.root:
        broken.append(POSITION.broken("mmr_root does not follow from the log before it", fact.seq))
    cursor.hub_ts = fact.hub_ts
    entry = Entry(cursor.label, fact.seq, b"", b"", FLAG_AUTHORIZE if fact.token else 0)
    placed = Placed(cursor.number, entry, b"", draft.reserve(cursor, fact.size), cursor.hub_ts, nodes)
    draft.fill(cursor, placed, fact.entry_hash)
    return broken


def note_content(
    draft: Draft, cursor: LabelCursor, fact: EntryFacts, tokens: set[AuthRef]
) -> list[InvariantError]:
    """Note what the MSG or token of a placed entry changes; return the rules that it breaks."""
    broken: list[InvariantError] = []
    if fact.token:
        assert fact.auth_ref is not None
        if fact.auth_ref in tokens:
            broken.append(TOKEN.broken(f"token {fact.auth_ref.hex()} was authorized before", fact.seq))
        tokens.add(fact.auth_ref)
        draft.note_token(fact.auth_ref, fact.token, cursor)
        return broken
    if fact.prev_ack >= fact.seq:
        found = f"prev_ack {fact.prev_ack} is beyond the {fact.seq - 1} entries before the MSG"
        broken.append(ACKNOWLEDGED.broken(found, fact.seq))
    held = draft.client(cursor.label, fact.client_id)
    last = held.last_seq if held is not None else ClientSeq(0)
    if fact.client_seq <= last:
        broken.append(UNIQUE.broken(f"client_seq {fact.client_seq} was accepted before", fact.seq))
    elif fact.client_seq != last + 1:
        found = f"client_seq {fact.client_seq} does not follow {last}"
        broken.append(CONSECUTIVE.broken(found, fact.seq))
    note_msg(draft, cursor, fact.client_id, fact.client_seq, fact.auth_ref)
    return broken
