"""Identifiers (§2): each meaning of a byte string or counter has its own type.

A byte string of fixed length is a ``FixedBytes``, a counter a ``NewType`` of ``int``. Hex strings are parsed
at the edge and not used inside the project.
"""

from __future__ import annotations

from typing import ClassVar, NewType, Self

from veen_core.errors import DecodeError, DecodeFault

StreamSeq = NewType("StreamSeq", int)
"""Position of an entry within its label, from 1; 0 means before the first entry (§2, B16)."""
ClientSeq = NewType("ClientSeq", int)
"""Number of a message among those of one client_id on one label, from 1 (§7 I9, B16)."""
Epoch = NewType("Epoch", int)
"""Number of a period of ``epoch_sec`` seconds; labels change with it (§3.2)."""
NO_ENTRIES = StreamSeq(0)
"""The ``StreamSeq`` of a label without entries (B16)."""
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
        """Parse lowercase hex; refuse any other text (B17)."""
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
    """Secret key material. Neither ``repr``, ``str`` nor an error shows it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<secret>)"

    __str__ = __repr__


class StreamId(FixedBytes):
    """Id of a logical stream, which the application defines (§2, B12)."""

    __slots__ = ()


class RoutingKey(FixedBytes):
    """Salt from which a hub derives its labels (§2, B13)."""

    __slots__ = ()


class Label(FixedBytes):
    """Id of one log of a hub: a stream in one epoch (§2)."""

    __slots__ = ()


class ProfileId(FixedBytes):
    """Hash of a profile's parameters (§3.2)."""

    __slots__ = ()


class HubId(FixedBytes):
    """Id of a hub, fixed by its first key (B13)."""

    __slots__ = ()


class BundleId(FixedBytes):
    """Id of an export bundle, ``Ht("veen/bundle", CBOR(header))``; zeros: no bundle (P6)."""

    __slots__ = ()


NO_BUNDLE = BundleId(bytes(32))
"""The previous bundle of the first bundle of a chain (P6)."""


class KeyId(FixedBytes):
    """Id of one hub key in identity artifacts (§8.4)."""

    __slots__ = ()


class CtHash(FixedBytes):
    """Hash of a ciphertext (§4.2)."""

    __slots__ = ()


class LeafHash(FixedBytes):
    """Leaf of the MMR, and id of a message (MsgID) (§2)."""

    __slots__ = ()


class OperationId(FixedBytes):
    """Id of an operation, ``Ht("veen/operation-id", leaf_hash)`` (spec-3 §1)."""

    __slots__ = ()


class NodeHash(FixedBytes):
    """Hash of a node of an MMR: a leaf, an inner node or a peak (§5.1)."""

    __slots__ = ()


class MmrRoot(FixedBytes):
    """Root of an MMR, computed from its peaks (§5.1)."""

    __slots__ = ()


class EntryHash(FixedBytes):
    """Hash over the bytes of one log entry (§4.8.1)."""

    __slots__ = ()


class SchemaId(FixedBytes):
    """Id of a record type of an overlay (§4.7, B14)."""

    __slots__ = ()


class AuthRef(FixedBytes):
    """Reference to a cap token, ``Ht("veen/cap", token)`` (§6)."""

    __slots__ = ()


class Coid(FixedBytes):
    """Content id of an attachment: the hash of its ciphertext (§4.6)."""

    __slots__ = ()


class AttRoot(FixedBytes):
    """Merkle root over an ordered list of coids (§4.6, B6)."""

    __slots__ = ()


class VerifyKey(FixedBytes):
    """An Ed25519 public key (§3.2)."""

    __slots__ = ()


class ClientId(VerifyKey):
    """Public key that verifies ``MSG.sig`` (§2)."""

    __slots__ = ()


class HubPk(VerifyKey):
    """Public key that verifies ``hub_sig`` (§8.4)."""

    __slots__ = ()


class DhPublicKey(FixedBytes):
    """An X25519 public key (§3.2)."""

    __slots__ = ()


class Signature(FixedBytes):
    """An Ed25519 signature (§3.2)."""

    __slots__ = ()
    SIZE = 64
