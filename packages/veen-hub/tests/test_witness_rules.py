"""The status codes of add-checkpoint, row by row, of our witness and of one without VEEN code."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from nacl.signing import SigningKey

from .independent_log import IndependentLog, base64_of
from .independent_witness import IndependentWitness
from .witnessing import SIZE, Asked, WitnessProcess, make_witness

KNOWN = 5
"""Size that the witness has cosigned before the request of a row."""


@dataclass(frozen=True)
class Row:
    """A request to a witness that knows ``known``, and the answer that the page asks for."""

    name: str
    request: Callable[[IndependentLog], str]
    status: int
    known: int = KNOWN
    size: str | None = None
    """The body of a 409 that tells the known size."""


def signed_by(key: SigningKey, log: IndependentLog, size: int) -> str:
    other = IndependentLog(log.origin, log.entries)
    other.key = key
    return other.checkpoint(size)


STRANGER = SigningKey(b"a stranger's key, of 32 bytes ..")


def stranger(log: IndependentLog, old: int, size: int) -> str:
    return log.request(old, size, signed_by(STRANGER, log, size))


def forged(log: IndependentLog, old: int, size: int) -> str:
    """Return a request whose signature line names the log's key and is over another text."""
    return log.request(old, size, f"{log.text(size)}\n{log.signature(log.text(size - 1))}")


def cosigned_by_others(log: IndependentLog, old: int, size: int) -> str:
    more = IndependentLog("another.example/witness").signature(log.text(size))
    return log.request(old, size, more.join([log.checkpoint(size), ""]))


def unknown(log: IndependentLog) -> IndependentLog:
    return IndependentLog(f"{log.origin}/unknown", log.entries)


TABLE = [
    Row("the first checkpoint", lambda log: log.request(0, 3), 200, known=0),
    Row("an empty tree", lambda log: log.request(0, 0), 200, known=0),
    Row("a larger tree", lambda log: log.request(5, 9), 200),
    Row("a larger tree after a power of two", lambda log: log.request(4, 11), 200, known=4),
    Row("the same tree again", lambda log: log.request(5, 5), 200),
    Row("signatures of unknown keys are ignored", lambda log: cosigned_by_others(log, 5, 9), 200),
    Row("extension lines", lambda log: log.request(5, 9, log.checkpoint(9, extension="more\n")), 200),
    Row("an unknown origin", lambda log: unknown(log).request(0, 3), 404),
    Row("an unknown origin and an unknown key", lambda log: stranger(unknown(log), 0, 3), 404),
    Row(
        "an unknown origin and an old size that is too large",
        lambda log: unknown(log).request(9, 3, proof=[]),
        404,
    ),
    Row("signed by an unknown key only", lambda log: stranger(log, 5, 9), 403),
    Row("a signature that does not verify", lambda log: forged(log, 5, 9), 403),
    Row("an unknown key and an old size that is too large", lambda log: stranger(log, 9, 6), 403),
    Row("an old size that is too large", lambda log: log.request(9, 6, proof=[]), 400),
    Row("an old size that is too large and not the known one", lambda log: log.request(4, 3, proof=[]), 400),
    Row("an old size of zero", lambda log: log.request(0, 9), 409, size="5\n"),
    Row("an old size that is too small", lambda log: log.request(4, 9), 409, size="5\n"),
    Row("an old size beyond the known one", lambda log: log.request(6, 9), 409, size="5\n"),
    Row(
        "an old size of a witness that knows nothing", lambda log: log.request(6, 9), 409, known=0, size="0\n"
    ),
    Row("a smaller tree", lambda log: log.request(3, 3), 409, size="5\n"),
    Row(
        "a wrong old size with a wrong proof",
        lambda log: log.request(4, 9, proof=[bytes(32)]),
        409,
        size="5\n",
    ),
    Row("a wrong proof", lambda log: log.request(5, 9, proof=[bytes(32)] * 4), 422),
    Row("no proof", lambda log: log.request(5, 9, proof=[]), 422),
    Row("a proof that is too long", lambda log: log.request(5, 9, proof=[*log.proof(5, 9), bytes(32)]), 422),
    Row("a proof that is too short", lambda log: log.request(5, 9, proof=log.proof(5, 9)[:-1]), 422),
    Row("the proof of another history", lambda log: log.fork(4, 11).request(5, 9), 422),
    Row("a proof from nothing", lambda log: log.request(0, 9, proof=[bytes(32)]), 422, known=0),
    Row("a proof between equal sizes", lambda log: log.request(5, 5, proof=[bytes(32)]), 422),
    Row("another root at the known size", lambda log: log.fork(4, 11).request(5, 5), 409),
    Row(
        "another root of the empty tree",
        lambda log: log.request(0, 0, log.checkpoint(0, bytes(32))),
        409,
        known=0,
    ),
]


def origin_of(row: Row) -> str:
    return f"log.example/{row.name.replace(' ', '-')}"


LOGS = [IndependentLog.of(origin_of(row), 11) for row in TABLE]
MALFORMED_LOG = IndependentLog.of("log.example/malformed", 9)
TIMED = IndependentLog.of("log.example/timed", 9)
ROTATED = IndependentLog.of("log.example/rotated", 9)
SUCCESSOR = IndependentLog.of("log.example/rotated", 9, seed="new")


@pytest.fixture(scope="module", params=["our witness", "an independent witness"])
def witness(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    logs = [*LOGS, MALFORMED_LOG, TIMED, ROTATED, SUCCESSOR]
    if request.param == "our witness":
        root = tmp_path_factory.mktemp("rules") / "witness"
        make_witness(root, logs)
        process = WitnessProcess(root)
        yield process
        assert process.stop() == 0
        return
    with IndependentWitness("witness.example/independent", [log.vkey for log in logs]) as independent:
        asked = Asked()
        asked.port, asked.vkey = int(independent.url.rpartition(":")[2]), independent.vkey
        yield asked


@pytest.mark.parametrize(("row", "log"), list(zip(TABLE, LOGS, strict=True)), ids=[row.name for row in TABLE])
def test_the_witness_answers_as_the_page_says(witness: Asked, row: Row, log: IndependentLog) -> None:
    if row.known:
        witness.cosigned(log, 0, row.known)
    body = row.request(log)
    answer = witness.post(body)
    assert answer.status == row.status, answer.body
    kind = answer.headers["content-type"]
    if row.size is not None:
        assert (kind, answer.body.decode()) == (SIZE, row.size)
    else:
        assert kind.startswith("text/plain")
    if row.status != 200 and row.known:
        assert witness.size_of(log) == row.known, "a refused request changes nothing"


def test_the_cosignature_covers_text_and_time(witness: Asked) -> None:
    before = int(time.time())
    assert before <= witness.cosigned(TIMED, 0, 3) <= int(time.time())


def test_keys_before_and_after_a_rotation_are_trusted(witness: Asked) -> None:
    witness.cosigned(ROTATED, 0, 3)
    both = ROTATED.checkpoint(5) + SUCCESSOR.signature(ROTATED.text(5))
    assert witness.post(ROTATED.request(3, 5, both)).status == 200
    witness.cosigned(SUCCESSOR, 5, 9)


def malformed() -> Iterator[tuple[str, bytes]]:
    log = MALFORMED_LOG
    good = log.request(0, 3)
    note = log.checkpoint(3)
    text = log.text(3)
    hashes = base64_of(bytes(32))
    yield "empty", b""
    yield "not UTF-8", good.encode().replace(b"malformed", b"\xff\xfe")
    yield "no empty line", good.replace("\n\n", "\n").encode()
    yield "no old size", f"\n{note}".encode()
    yield "an old size with a leading zero", good.replace("old 0", "old 00").encode()
    yield "a negative old size", good.replace("old 0", "old -0").encode()
    yield "an old size with two spaces", good.replace("old 0", "old  0").encode()
    yield "an old size in capitals", good.replace("old 0", "OLD 0").encode()
    yield "an old size beyond 63 bits", good.replace("old 0", f"old {2**63}").encode()
    yield "64 hashes", log.request(0, 3, proof=[bytes(32)] * 64).encode()
    yield "a hash that is not base64", f"old 0\n!!!\n\n{note}".encode()
    yield "a hash of 31 bytes", f"old 0\n{base64_of(bytes(31))}\n\n{note}".encode()
    yield "base64 that is not canonical", f"old 0\n{hashes[:-2]}B=\n\n{note}".encode()
    yield "lines that end with CRLF", good.replace("\n", "\r\n").encode()
    yield "no newline at the end", good.removesuffix("\n").encode()
    yield "no signatures", f"old 0\n\n{text}\n".encode()
    yield "a signature line without a dash", good.replace("— ", "- ").encode()
    yield "a size with a leading zero", log.request(0, 3, note.replace("\n3\n", "\n03\n")).encode()
    yield "a size that is not a number", log.request(0, 3, note.replace("\n3\n", "\nthree\n")).encode()
    yield "a root of 31 bytes", log.request(0, 3, log.checkpoint(3, bytes(31))).encode()
    yield "no root", f"old 0\n\n{log.origin}\n3\n\n{log.signature(text)}".encode()
    yield "an empty origin", log.request(0, 3, note.replace(log.origin, "", 1)).encode()


@pytest.mark.parametrize(("body"), [body for _, body in malformed()], ids=[name for name, _ in malformed()])
@pytest.mark.parametrize("witness", ["our witness"], indirect=True)
def test_a_malformed_request_is_refused_with_400(witness: Asked, body: bytes) -> None:
    answer = witness.post(body)
    assert answer.status == 400, answer.body
    assert answer.headers["content-type"].startswith("text/plain")


def test_the_independent_log_gives_the_tree_of_rfc_6962() -> None:
    """The test's own log is checked against the root of certificate transparency's test vectors."""
    entries = [
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    ]
    log = IndependentLog("x", map(bytes.fromhex, entries))
    assert log.root(8).hex() == "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328"
    assert base64.b64encode(log.root(0)).decode() == "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
