"""The signer process: its signatures equal the sequencer's own, and the hub works without it."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator

import pytest

from veen_core.hashing import H
from veen_core.ids import HubPk
from veen_core.receipt import verify_receipt
from veen_hub.pipeline.signer import ReceiptSigner
from veen_hub.pipeline.worker_process import MIN_QUESTIONS
from veen_storage.disk.hub_keys import sign_here

from .conftest import StartProcess
from .people import HUB_KEY, signing_key
from .serving import answer_with, authorized_writers, end_while_starting, processes_of, saturate, until

DIGESTS = [H(bytes([n])) for n in range(2 * MIN_QUESTIONS)]
EXPECTED = sign_here(HUB_KEY, DIGESTS)

two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="on one core a hub has no signer")


def signers_of(pid: int) -> list[int]:
    return processes_of(pid, b"veen_hub.pipeline.signer")


@pytest.fixture
def signer() -> Iterator[ReceiptSigner]:
    made = ReceiptSigner(enabled=lambda: True)
    until(lambda: made(HUB_KEY, DIGESTS) and made.process.ready, "the process is ready")
    yield made
    made.close()


def test_a_process_makes_the_same_signatures_as_a_thread(signer: ReceiptSigner) -> None:
    """RFC 8032 signatures are deterministic."""
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    assert signer.process.ready
    assert signer(HUB_KEY, DIGESTS[:1]) == EXPECTED[:1]
    assert not signer(HUB_KEY, [])


def test_expected_digests_are_signed_ahead(signer: ReceiptSigner) -> None:
    signer.expect(HUB_KEY, DIGESTS[:MIN_QUESTIONS])
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    signer.expect(HUB_KEY, DIGESTS)
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    assert signer.process.ready


def test_expected_digests_that_are_never_signed_have_no_effect(signer: ReceiptSigner) -> None:
    """A batch that failed."""
    signer.expect(HUB_KEY, [H(b"dropped" + digest) for digest in DIGESTS])
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    signer.expect(HUB_KEY, [H(b"dropped" + digest) for digest in DIGESTS])
    signer.expect(HUB_KEY, DIGESTS)
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    assert signer.process.ready


def test_digests_lost_with_a_process_are_signed_again(signer: ReceiptSigner) -> None:
    signer.expect(HUB_KEY, DIGESTS)
    for child in signers_of(os.getpid()):
        os.kill(child, signal.SIGKILL)
    until(lambda: not signers_of(os.getpid()) or signer(HUB_KEY, DIGESTS) == EXPECTED, "it is gone")
    signer.expect(HUB_KEY, DIGESTS)
    assert signer(HUB_KEY, DIGESTS) == EXPECTED


def test_signatures_of_the_old_key_are_not_used_for_the_new_one(signer: ReceiptSigner) -> None:
    new = signing_key("hub/1")
    signer.expect(HUB_KEY, DIGESTS)
    assert signer(new, DIGESTS) == sign_here(new, DIGESTS)


def test_the_secret_shows_in_no_argument_and_no_environment(signer: ReceiptSigner) -> None:
    assert signer.process.ready
    (child,) = signers_of(os.getpid())
    for name in ("cmdline", "environ"):
        with open(f"/proc/{child}/{name}", "rb") as shown:
            seen = shown.read()
        assert HUB_KEY.seed not in seen
        assert HUB_KEY.seed.hex().encode() not in seen


def test_after_a_rotation_the_new_key_signs(signer: ReceiptSigner) -> None:
    new = signing_key("hub/1")
    for _ in range(3):
        assert signer(new, DIGESTS) == sign_here(new, DIGESTS)
    until(lambda: signer(new, DIGESTS) and signer.process.ready, "a process with the new key is ready")
    assert signer(new, DIGESTS) == sign_here(new, DIGESTS)


def test_a_process_that_dies_loses_no_result(signer: ReceiptSigner) -> None:
    for child in signers_of(os.getpid()):
        os.kill(child, signal.SIGKILL)
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    assert not signer.process.ready


def test_a_process_that_ends_before_it_is_ready_loses_no_result(signer: ReceiptSigner) -> None:
    signer.close()
    end_while_starting(signer.process)
    assert signer(HUB_KEY, DIGESTS) == EXPECTED


@pytest.mark.parametrize("answer", ["another key", "too few", "not signatures"])
def test_invalid_signatures_are_not_used(signer: ReceiptSigner, answer: str) -> None:
    lies = {
        "another key": [bytes(one) for one in sign_here(signing_key("stranger"), DIGESTS)],
        "too few": [bytes(one) for one in EXPECTED[:-1]],
        "not signatures": [b"short"] * len(DIGESTS),
    }[answer]
    signer.close()
    answer_with(signer.process, lies)
    assert signer(HUB_KEY, DIGESTS) == EXPECTED
    assert not signer.process.ready


@two_cores
def test_receipts_of_a_busy_hub_verify_while_its_signer_is_killed(start_process: StartProcess) -> None:
    process = start_process()
    writers = authorized_writers(process)
    killed = 0
    while killed < 2:
        for receipt in itertools.chain(*saturate(process, writers)):
            verify_receipt(receipt, HubPk(HUB_KEY.public))
        for child in signers_of(process.process.pid):
            os.kill(child, signal.SIGKILL)
            killed += 1
    children = signers_of(process.process.pid)
    assert process.stop() == 0
    assert not any(os.path.exists(f"/proc/{child}") for child in children)
