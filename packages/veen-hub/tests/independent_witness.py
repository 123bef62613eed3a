"""A C2SP witness that imports no VEEN code, to test the hub against an independent reading of the pages.

In a test:

    with IndependentWitness("witness.example/w1", [hub_vkey]) as witness:
        ...  # witness.url is the submission prefix, witness.vkey the verifier key

As a program, it prints its verifier key and its address, and serves until it is ended:

    python independent_witness.py NAME LOG_VKEY [LOG_VKEY …] [--port N] [--seed HEX] [--state FILE]

A test can make the witness misbehave: ``delay_sec`` answers late, ``answer`` replaces the next answers, and
``forget`` loses the memory of a log.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from nacl.exceptions import BadSignatureError
from nacl.signing import SigningKey, VerifyKey

LOG, WITNESS = b"\x01", b"\x04"


class Answer(NamedTuple):
    status: int
    body: str
    kind: str = "text/plain; charset=utf-8"


def key_id(name: str, kind: bytes, public: bytes) -> bytes:
    return hashlib.sha256(name.encode() + b"\n" + kind + public).digest()[:4]


def base64_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parse_signature(line: str) -> tuple[str, bytes]:
    """Return the name of a signature line, and its key id with the signature."""
    dash, name, value = line.split(" ")
    if dash != "—":
        raise ValueError(line)
    return name, base64.b64decode(value, validate=True)


def inner(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def is_consistent(old: int, new: int, proof: list[bytes], old_root: bytes, new_root: bytes) -> bool:
    """Follow the definition of SUBPROOF in RFC 6962 §2.1.2, taking the proof's hashes from the front."""
    if old == 0:
        return not proof
    left = list(proof)

    def walk(m: int, n: int, whole: bool) -> tuple[bytes, bytes]:
        if m == n:
            found = old_root if whole else left.pop(0)
            return found, found
        k = 1 << ((n - 1).bit_length() - 1)
        if m <= k:
            before, after = walk(m, k, whole)
            return before, inner(after, left.pop(0))
        before, after = walk(m - k, n - k, whole=False)
        first = left.pop(0)
        return inner(first, before), inner(first, after)

    try:
        return walk(old, new, whole=True) == (old_root, new_root) and not left
    except IndexError:
        return False


class IndependentWitness:
    """The witness's side of tlog-witness, one thread per connection and one lock around the state."""

    def __init__(
        self,
        name: str,
        log_vkeys: Iterable[str],
        *,
        seed: bytes | None = None,
        port: int = 0,
        state_file: Path | None = None,
    ) -> None:
        self.name = name
        self._key = SigningKey(seed or os.urandom(32))
        self._logs: dict[str, list[tuple[bytes, VerifyKey]]] = {}
        for vkey in log_vkeys:
            origin, _, rest = vkey.partition("+")
            public = base64.b64decode(rest.partition("+")[2])[1:]
            self._logs.setdefault(origin, []).append((key_id(origin, LOG, public), VerifyKey(public)))
        self._state_file = state_file
        self.state: dict[str, tuple[int, str]] = {}
        """Size and root, in base64, of the newest cosigned checkpoint by origin."""
        if state_file is not None and state_file.exists():
            self.state = {
                origin: (size, root) for origin, (size, root) in json.loads(state_file.read_text()).items()
            }
        self.answered: list[int] = []
        """The status of every answer so far."""
        self.delay_sec = 0.0
        self.answer: Callable[[bytes], Answer | None] = lambda _body: None
        """Given the body of a request; an answer other than None is sent instead of the witness's own."""
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.witness = self
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def vkey(self) -> str:
        public = bytes(self._key.verify_key)
        return f"{self.name}+{key_id(self.name, WITNESS, public).hex()}+{base64_of(WITNESS + public)}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def serve_forever(self) -> None:
        self._server.serve_forever()

    def forget(self, origin: str) -> None:
        with self._lock:
            self.state.pop(origin, None)

    def add_checkpoint(self, body: bytes) -> Answer:
        """Check a request in the order of the page, and cosign."""
        try:
            head, note = body.decode().split("\n\n", 1)
            text, lines = note.rsplit("\n\n", 1)
            old_line, *proof_lines = head.split("\n")
            origin, size_text, root = text.split("\n")[:3]
            old, size = int(old_line.removeprefix("old ")), int(size_text)
            proof = [base64.b64decode(line, validate=True) for line in proof_lines]
            signatures = [parse_signature(line) for line in lines.removesuffix("\n").split("\n")]
        except ValueError:
            return Answer(400, "malformed\n")
        canonical = old_line == f"old {old}" and size_text == str(size) and lines.endswith("\n")
        if not canonical or len(proof) > 63 or any(len(each) != 32 for each in proof):
            return Answer(400, "malformed\n")
        if origin not in self._logs:
            return Answer(404, "unknown origin\n")
        if not self._is_signed(origin, text + "\n", signatures):
            return Answer(403, "no signature by a key of this log\n")
        if old > size:
            return Answer(400, "the old size is larger than the checkpoint\n")
        with self._lock:
            known, known_root = self.state.get(origin, (0, base64_of(hashlib.sha256().digest())))
            if old != known:
                return Answer(409, f"{known}\n", "text/x.tlog.size")
            if old == size and not proof:
                if root != known_root:
                    return Answer(409, "another root at this size\n")
            elif old == size or not is_consistent(
                old, size, proof, base64.b64decode(known_root), base64.b64decode(root)
            ):
                return Answer(422, "the proof does not verify\n")
            self.state[origin] = size, root
            self._save()
        return Answer(200, self._cosign(text + "\n"))

    def _is_signed(self, origin: str, text: str, signatures: list[tuple[str, bytes]]) -> bool:
        for name, value in signatures:
            for trusted_id, key in self._logs[origin]:
                if name == origin and value[:4] == trusted_id:
                    try:
                        key.verify(text.encode(), value[4:])
                    except (BadSignatureError, ValueError):
                        return False
                    return True
        return False

    def _cosign(self, text: str) -> str:
        now = int(time.time())
        signed = self._key.sign(f"cosignature/v1\ntime {now}\n{text}".encode()).signature
        public = bytes(self._key.verify_key)
        return f"— {self.name} {base64_of(key_id(self.name, WITNESS, public) + now.to_bytes(8) + signed)}\n"

    def _save(self) -> None:
        if self._state_file is None:
            return
        new = self._state_file.with_suffix(".new")
        with new.open("w") as file:
            json.dump(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._state_file)


class _Server(ThreadingHTTPServer):
    witness: IndependentWitness
    daemon_threads = True
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body in one segment
    timeout = 30

    def do_POST(self) -> None:
        witness = self.server.witness
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        time.sleep(witness.delay_sec)
        is_call = self.path == "/add-checkpoint"
        answer = (
            (witness.answer(body) or witness.add_checkpoint(body))
            if is_call
            else Answer(404, "no such path\n")
        )
        witness.answered.append(answer.status)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body.encode())))
        self.end_headers()
        self.wfile.write(answer.body.encode())

    def log_message(self, *_: Any) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve an independent C2SP witness.")
    parser.add_argument("name")
    parser.add_argument("log_vkeys", nargs="+")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=bytes.fromhex)
    parser.add_argument("--state", type=Path)
    given = parser.parse_args()
    witness = IndependentWitness(
        given.name, given.log_vkeys, seed=given.seed, port=given.port, state_file=given.state
    )
    print(f"{witness.vkey} {witness.url}", flush=True)  # noqa: T201 - the caller reads it
    witness.serve_forever()


if __name__ == "__main__":
    main()
