"""The same requests at the same times give the same bytes, whatever was committed together (I13, §10.2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_core import cbor
from veen_core.api import SubmitResponse
from veen_core.limits import Limits
from veen_core.profile import PROFILES

from .conftest import StartHub
from .people import BORN, Writer, ciphertext, envelope
from .serving import CBOR_SEQ, RunningHub, SetClock

LIMITS = Limits(max_msg_bytes=4_096, max_chunk_bytes=65_536, max_checkpoint_interval=16)
MOMENTS = [BORN, BORN + 7, BORN + 59, BORN + 60, BORN + 61]


def tree(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def wires_of(writers: list[Writer], moment: int) -> list[bytes]:
    """What everybody sends at one moment; some of it is to be refused."""
    sent: list[bytes] = []
    for n in range(40):
        writer = writers[n % len(writers)]
        sent.append(writer.next(ciphertext=ciphertext(f"{moment} {n}".encode() * (n % 5 + 1))))
        if n % 7 == 0:
            sent.append(writer.message(writer.seq))  # again
        if n % 11 == 0:
            sent.append(writer.message(writer.seq + 1, sig=bytes(64)))
    return sent


def send(hub: RunningHub, wires: list[bytes], together: int) -> list[bytes]:
    """Receipts, or the row that refused."""
    if together == 1:
        answers = [hub.submit(wire) for wire in wires]
        return [
            a.read(SubmitResponse).receipt.encode() if a.status == 200 else (a.detail or "").encode()
            for a in answers
        ]
    found: list[bytes] = []
    for at in range(0, len(wires), together):
        body = b"".join(map(envelope, wires[at : at + together]))
        answer = hub.post("/v1/submit", body, CBOR_SEQ)
        for item in cbor.split_sequence(answer.body):
            held = cbor.decode(item)
            assert isinstance(held, dict)
            if isinstance(held[2], list):
                found.append(cbor.encode(held[2]))
            else:
                detail = held[4]
                assert isinstance(detail, dict)
                found.append(str(detail["detail_enum"]).encode())
    return found


def history(
    start_hub: StartHub, name: str, profile: str, together: int
) -> tuple[list[bytes], dict[str, bytes]]:
    clock = SetClock()
    settings = {"checkpoints__every_entries": 9, "checkpoints__every_sec": 0}
    hub = start_hub(name, profile=PROFILES[profile], limits=LIMITS, clock=clock, **settings)
    writers = [hub.writer("alice"), hub.writer("bob"), hub.writer("alice", to="invoices")]
    found: list[bytes] = []
    for moment in MOMENTS:
        clock.time = moment
        found += send(hub, wires_of(writers, moment), together)
    hub.stop()
    return found, tree(hub.root / "log")


@pytest.mark.parametrize("profile", ["default", "rotating"])
def test_two_hubs_with_one_key_give_the_same_receipts_and_the_same_log(
    start_hub: StartHub, profile: str
) -> None:
    first = history(start_hub, "one", profile, together=1)
    second = history(start_hub, "two", profile, together=1)
    batched = history(start_hub, "many", profile, together=1_000)
    some = history(start_hub, "some", profile, together=13)
    assert first[0] == second[0] == batched[0] == some[0]
    assert first[1].keys() == batched[1].keys()
    assert first[1] == second[1] == batched[1] == some[1]
    assert any(name.startswith("checkpoint-") for name in first[1])
    assert b"DUPLICATE" in first[0]


def test_a_restart_in_between_changes_nothing(start_hub: StartHub) -> None:
    whole = history(start_hub, "whole", "default", together=1)
    clock = SetClock()
    settings = {"checkpoints__every_entries": 9, "checkpoints__every_sec": 0}

    def start() -> RunningHub:
        return start_hub("restarted", limits=LIMITS, clock=clock, **settings)

    hub = start()
    writers = [hub.writer("alice"), hub.writer("bob"), hub.writer("alice", to="invoices")]
    found: list[bytes] = []
    for moment in MOMENTS:
        clock.time = moment
        found += send(hub, wires_of(writers, moment), 1)
        hub.stop()
        hub = start()
    hub.stop()
    assert (found, tree(hub.root / "log")) == whole
