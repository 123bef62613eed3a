"""The fold of calls: a plain interpreter agrees, any division of the log gives the same bytes (RPC0, P15)."""

from __future__ import annotations

import random

import pytest
from rpc_logs import CLIENTS, OPERATORS, interpret, message, random_log

from veen_core.ids import ClientId
from veen_overlays.fold.event import MemorySeenKeys
from veen_overlays.rpc.calls import CALLS, calls_of
from veen_overlays.rpc.records import Reply, Request, sign_lease

COMPARED = ("seq", "method", "client_id", "status", "reply_seq", "server", "code")


def compared(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    return [{name: row[name] for name in COMPARED if name in row} for row in rows]


@pytest.mark.parametrize("seed", range(40))
def test_the_fold_agrees_with_the_plain_interpreter(seed: int) -> None:
    log = random_log(seed)
    assert compared(CALLS.view(CALLS.fold(log).inner)) == interpret(log)
    trusted = {bytes(OPERATORS[0].public)}
    overlay = calls_of(trusted)
    assert compared(overlay.view(overlay.fold(log).inner)) == interpret(log, trusted)


@pytest.mark.parametrize("seed", range(20))
def test_any_division_of_a_log_with_signers_and_times_gives_the_same_bytes(seed: int) -> None:
    log, rng = random_log(seed), random.Random(seed)
    cuts = sorted(rng.randrange(len(log)) for _ in range(5))
    seen = MemorySeenKeys()
    edges = zip([0, *cuts], [*cuts, len(log)], strict=True)
    parts = [CALLS.fold(log[a:b], seen) for a, b in edges]
    whole = CALLS.fold(log)
    assert CALLS.encode(CALLS.merge(parts)) == CALLS.encode(whole)
    assert CALLS.encode(CALLS.load(CALLS.encode(whole))) == CALLS.encode(whole)
    assert CALLS.encode(CALLS.fold([*log, *log])) == CALLS.encode(whole)


def test_a_wrapped_copy_of_a_call_is_the_same_call() -> None:
    """A bridge in mode wrap keeps the parent of a reply, and the request's own MsgID (P4)."""
    lease = sign_lease(OPERATORS[0], ClientId(CLIENTS[0]), ("a",), 30)
    request = message(2, Request(method="a", args=1), CLIENTS[1], 10)
    log = [
        message(1, lease, CLIENTS[0], 10),
        request,
        message(3, Reply(ok=True, result=2), CLIENTS[0], 11, request.msg_id),
    ]
    copies = [m._replace(msg_id=b"c" * 31 + bytes([m.seq]), parent_id=m.parent_id or m.msg_id) for m in log]
    assert CALLS.encode(CALLS.fold(copies)) == CALLS.encode(CALLS.fold(log))


def test_malformed_records_are_counted_and_change_nothing() -> None:
    log = random_log(3)
    broken = [m for m in log if m.body == b"\xa0"]
    folded = CALLS.fold(log)
    assert broken
    assert folded.undecodable == len(broken)
    assert CALLS.state_bytes(folded) == CALLS.state_bytes(CALLS.fold([m for m in log if m not in broken]))
