"""A signer: the sequencer's own process for the receipts of large batches.

It is told the hub's secret key over its standard input: no argument, no environment and no file holds it.
One receipt of each batch is verified before any counts: what nobody can verify must not become durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from veen_core.errors import DecodeError, SignatureError
from veen_core.ids import Signature, VerifyKey
from veen_core.keys import SigningKey, SigningSeed, verify
from veen_hub.apart import Apart, serve
from veen_storage.hub_keys import sign_here

PATIENCE_SEC: Final = 1.0
"""Everybody waits for the sequencer."""


class Signer:
    """Belongs to the sequencer; called as ``veen_storage.hub_keys.SignMany``."""

    def __init__(self, *, apart: bool) -> None:
        self.apart = Apart(__name__, enabled=apart, patience=PATIENCE_SEC)
        self._key: VerifyKey | None = None

    def __call__(self, key: SigningKey, digests: list[bytes]) -> Sequence[Signature]:
        if self._key != key.public:
            self.apart.close()  # the hub has rotated: the process knows the old one
            self._key = key.public
        signed = self.apart.ask([bytes(key.seed)], digests)
        if signed is not None:
            try:
                signatures = [Signature(one) for one in signed]
                verify(key.public, digests[-1], signatures[-1], "RECEIPT.hub_sig §4.3")
                return signatures
            except (DecodeError, SignatureError, TypeError) as exc:
                self.apart.give_up(str(exc))
        return sign_here(key, digests)

    def close(self) -> None:
        self.apart.close()


def _open_with(opening: list[bytes]) -> Callable[[bytes], bytes]:
    (seed,) = opening
    key = SigningKey(SigningSeed(seed))
    return lambda digest: bytes(key.sign(digest))


if __name__ == "__main__":
    serve(_open_with)
