"""Signer process: signs the receipts of large batches while the sequencer places the rest of the batch.

The hub's secret key is sent over the pipe; no argument, environment variable or file holds it. One receipt
of each batch is verified before any is used, so that a receipt that does not verify never becomes durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from veen_core.errors import DecodeError, SignatureError
from veen_core.ids import Signature, VerifyKey
from veen_core.keys import SigningKey, SigningSeed, verify
from veen_hub.pipeline.worker_process import WorkerProcess, serve

TIMEOUT_SEC: Final = 1.0
"""Every request waits for the sequencer, so a signer that hangs is killed early."""


class ReceiptSigner:
    """Signs receipts for the sequencer (``veen_storage``'s ``SignMany``)."""

    def __init__(self, *, enabled: Callable[[], bool]) -> None:
        """Sign in the calling thread unless ``enabled`` returns True."""
        self.process = WorkerProcess(__name__, enabled=enabled, timeout_sec=TIMEOUT_SEC)
        self._key: VerifyKey | None = None
        self._posted: list[list[bytes]] = []
        """Digests that were sent to the process and whose signatures were not taken yet."""

    def expect(self, key: SigningKey, digests: list[bytes]) -> None:
        """Hint: these digests will be signed soon; the process may start."""
        if self._key != key.public:
            self.close()  # the hub's key was rotated, and the process holds the old one
            self._key = key.public
        if not self.process.ready:
            self._posted = []  # lost with the process
        if self.process.post([bytes(key.seed)], digests):
            self._posted.append(digests)

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
        """Return a signature for each digest; digests without a signature of the process are signed here."""
        self.expect(key, digests[sum(map(len, self._posted)) :])
        try:
            signed = self._signed()
            if last := next((digest for digest in reversed(digests) if digest in signed), None):
                verify(key.public, last, signed[last], "RECEIPT.hub_sig (core §4.3)")
        except (DecodeError, SignatureError, TypeError) as exc:
            self.process.give_up(str(exc))
            signed = {}
        return [signed.get(digest) or key.sign(digest) for digest in digests]

    def _signed(self) -> dict[bytes, Signature]:
        """Take all signatures of the process, by digest; some may belong to an earlier batch that failed."""
        signed: dict[bytes, Signature] = {}
        posted, self._posted = self._posted, []
        for part in posted:
            answers = self.process.take(len(part))
            if answers is None:
                return signed
            signed.update(zip(part, map(Signature, answers), strict=True))
        return signed

    def close(self) -> None:
        self.process.close()
        self._posted = []


def _open_with(opening: list[bytes]) -> Callable[[bytes], bytes]:
    (seed,) = opening
    key = SigningKey(SigningSeed(seed))
    return lambda digest: bytes(key.sign(digest))


if __name__ == "__main__":
    serve(_open_with)
