"""A signer: the sequencer's own process for the receipts of large batches.

It is told the hub's secret key over its standard input: no argument, no environment and no file holds it.
It signs what it is told to expect while the sequencer still places the rest of the batch.
One receipt of each batch is verified before any counts: what nobody can verify must not become durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from veen_core.errors import DecodeError, SignatureError
from veen_core.ids import Signature, VerifyKey
from veen_core.keys import SigningKey, SigningSeed, verify
from veen_hub.pipeline.worker_process import Apart, serve

PATIENCE_SEC: Final = 1.0
"""Everybody waits for the sequencer."""


class Signer:
    """Belongs to the sequencer; the hub's ``veen_storage.disk.hub_keys.SignMany``."""

    def __init__(self, *, apart: bool) -> None:
        self.apart = Apart(__name__, enabled=apart, patience=PATIENCE_SEC)
        self._key: VerifyKey | None = None
        self._under_way: list[list[bytes]] = []
        """What the process was given and has not answered, or was not asked for its answers yet."""

    def expect(self, key: SigningKey, digests: list[bytes]) -> None:
        if self._key != key.public:
            self.close()  # the hub has rotated: the process knows the old one
            self._key = key.public
        if not self.apart.ready:
            self._under_way = []  # lost with the process
        if self.apart.post([bytes(key.seed)], digests):
            self._under_way.append(digests)

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
        self.expect(key, digests[sum(map(len, self._under_way)) :])
        try:
            signed = self._signed()
            if last := next((digest for digest in reversed(digests) if digest in signed), None):
                verify(key.public, last, signed[last], "RECEIPT.hub_sig (core §4.3)")
        except (DecodeError, SignatureError, TypeError) as exc:
            self.apart.give_up(str(exc))
            signed = {}
        return [signed.get(digest) or key.sign(digest) for digest in digests]

    def _signed(self) -> dict[bytes, Signature]:
        """By digest: of a batch that failed some are not asked for any more."""
        signed: dict[bytes, Signature] = {}
        under_way, self._under_way = self._under_way, []
        for part in under_way:
            answers = self.apart.take(len(part))
            if answers is None:  # the rest is lost with the process
                return signed
            signed.update(zip(part, map(Signature, answers), strict=True))
        return signed

    def close(self) -> None:
        self.apart.close()
        self._under_way = []


def _open_with(opening: list[bytes]) -> Callable[[bytes], bytes]:
    (seed,) = opening
    key = SigningKey(SigningSeed(seed))
    return lambda digest: bytes(key.sign(digest))


if __name__ == "__main__":
    serve(_open_with)
