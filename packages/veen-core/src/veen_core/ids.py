"""Identifiers of §2: same bytes, different meanings, different types.

A byte string whose length is part of its meaning is a ``FixedBytes``; a counter is a
``NewType`` of ``int``. Inside the project there are no hex strings.
"""

from __future__ import annotations

from typing import ClassVar, NewType, Self

from veen_core.errors import DecodeError, DecodeFault

StreamSeq = NewType("StreamSeq", int)
"""1-based position within a label; 0 stands for "nothing yet" (§2, B16)."""
ClientSeq = NewType("ClientSeq", int)
"""Per-(label, client) counter, strictly +1, from 1 (§7 I9, B16)."""
Epoch = NewType("Epoch", int)
"""Routing epoch (§3.2)."""
NO_ENTRIES = StreamSeq(0)
"""Before the first entry of a label (B16)."""
UnixTime = NewType("UnixTime", int)
"""Seconds since the Unix epoch; ``hub_ts`` is one (§4.3)."""


class FixedBytes(bytes):
    """A byte string whose length is part of its type."""

    __slots__ = ()
    SIZE: ClassVar[int] = 32

    def __new__(cls, value: bytes) -> Self:
        if len(value) != cls.SIZE:
            raise DecodeError(
                f"want {cls.__name__} of {cls.SIZE} bytes, found {len(value)}", fault=DecodeFault.SIZE
            )
        return bytes.__new__(cls, value)

    @classmethod
    def from_hex(cls, text: str) -> Self:
        """Parse at the edge: lowercase hex, nothing else (B17)."""
        try:
            value = bytes.fromhex(text)
        except ValueError:
            raise DecodeError(f"want {cls.__name__} in hex, found text that is not hex") from None
        if value.hex() != text:
            raise DecodeError(f"want {cls.__name__} in lowercase hex without spaces")
        return cls(value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.hex()})"

    __str__ = __repr__


class Secret(FixedBytes):
    """Key material. Never shown: not in ``repr``, not in ``str``, not in an error."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    __str__ = __repr__


class StreamId(FixedBytes):
    """Application-defined logical stream (§2, B12)."""

    __slots__ = ()


class RoutingKey(FixedBytes):
    """Hub-scoped salt of labels (§2, B13)."""

    __slots__ = ()


class Label(FixedBytes):
    """Routing identifier that a hub orders by (§2)."""

    __slots__ = ()


class ProfileId(FixedBytes):
    """Hash of the profile's parameters (§3.2)."""

    __slots__ = ()


class HubId(FixedBytes):
    """A hub's identity, fixed at creation (B13)."""

    __slots__ = ()


class KeyId(FixedBytes):
    """Names one hub key in identity artifacts (§8.4)."""

    __slots__ = ()


class CtHash(FixedBytes):
    """``H(ciphertext)`` (§4.2)."""

    __slots__ = ()


class LeafHash(FixedBytes):
    """MsgID: what the MMR commits to (§2)."""

    __slots__ = ()


class OperationId(FixedBytes):
    """``Ht("veen/operation-id", leaf_hash)`` (spec-3 §1)."""

    __slots__ = ()


class NodeHash(FixedBytes):
    """A node of an MMR: a leaf, an inner node or a peak (§5.1)."""

    __slots__ = ()


class MmrRoot(FixedBytes):
    """Fold of the peaks (§5.1)."""

    __slots__ = ()


class EntryHash(FixedBytes):
    """Durable integrity check of one log entry (§4.8.1)."""

    __slots__ = ()


class SchemaId(FixedBytes):
    """Names an overlay's record type (§4.7, B14)."""

    __slots__ = ()


class AuthRef(FixedBytes):
    """``Ht("veen/cap", token)``: names a cap token (§6)."""

    __slots__ = ()


class Coid(FixedBytes):
    """Content id of an attachment's ciphertext (§4.6)."""

    __slots__ = ()


class AttRoot(FixedBytes):
    """Merkle root over an ordered list of coids (§4.6, B6)."""

    __slots__ = ()


class VerifyKey(FixedBytes):
    """An Ed25519 public key (§3.2)."""

    __slots__ = ()


class ClientId(VerifyKey):
    """The key that verifies ``MSG.sig`` (§2)."""

    __slots__ = ()


class HubPk(VerifyKey):
    """The key that verifies ``hub_sig`` (§8.4)."""

    __slots__ = ()


class DhPublicKey(FixedBytes):
    """An X25519 public key (§3.2)."""

    __slots__ = ()


class Signature(FixedBytes):
    """An Ed25519 signature (§3.2)."""

    __slots__ = ()
    SIZE = 64
