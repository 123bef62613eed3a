"""An independent reader of hub checkpoints: C2SP notes and cosignatures, by hashlib and nacl only.

It shares no code with ``veen_core.tlog``. A checkpoint must satisfy both readers. If only one of them accepts
it, one of the readers has misread the C2SP pages or P1.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from nacl.exceptions import BadSignatureError
from nacl.signing import VerifyKey

from veen_selftest.runner.check import ClauseViolation, require

LOG_KEY: Final = b"\x01"
"""Signature type of a log's key (C2SP signed-note)."""
WITNESS_KEY: Final = b"\x04"
"""Signature type of a witness's key (C2SP tlog-cosignature)."""
_LINE: Final = r"\u2014 [^\s+]+ [A-Za-z0-9+/]+={0,2}\n"
_CHECKPOINT: Final = re.compile(
    r"(?P<text>(?P<origin>[^\x00-\x1f]+)\n(?P<size>0|[1-9][0-9]*)\n(?P<root>[A-Za-z0-9+/]{43}=)\n)"
    rf"\n(?P<lines>(?:{_LINE})+)"
)
"""Three lines and no extension lines (P1), an empty line, and signature lines."""


@dataclass(frozen=True, slots=True)
class SignatureLine:
    """One signature of a note; name and key id together name the key."""

    name: str
    key_id: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class HubCheckpoint:
    """A hub checkpoint as it was served; its signatures are not verified yet."""

    origin: str
    size: int
    root: bytes
    text: bytes
    """The bytes that the hub signed."""
    lines: tuple[SignatureLine, ...]


def parse_hub_checkpoint(data: bytes) -> HubCheckpoint:
    """Parse a hub checkpoint; raise ``ClauseViolation`` unless it has exactly the form of P1 and C2SP."""
    try:
        match = _CHECKPOINT.fullmatch(data.decode())
    except UnicodeDecodeError:
        raise ClauseViolation("the hub checkpoint is not UTF-8 (C2SP signed-note)") from None
    if match is None:
        raise ClauseViolation(
            "the hub checkpoint is not a note of origin, size, root and signatures (C2SP tlog-checkpoint)"
        )
    return HubCheckpoint(
        match["origin"],
        int(match["size"]),
        _decode(match["root"]),
        match["text"].encode(),
        tuple(_parse_line(line) for line in match["lines"].split("\n")[:-1]),
    )


def _parse_line(line: str) -> SignatureLine:
    _dash, name, value = line.split(" ")
    content = _decode(value)
    require(len(content) > 4, f"the signature of {name} is empty (C2SP signed-note)")
    return SignatureLine(name, content[:4], content[4:])


def _decode(text: str) -> bytes:
    """Decode base64; raise ``ClauseViolation`` if the text has another spelling than the encoder's."""
    try:
        content = base64.b64decode(text, validate=True)
    except ValueError:
        content = b""
    require(base64.b64encode(content).decode() == text, f"{text[:60]!r} is not base64 (RFC 4648 §4)")
    return content


def key_id(name: str, kind: bytes, public: bytes) -> bytes:
    """Return the key id: the start of SHA-256(name, newline, signature type, public key)."""
    return sha256(name.encode() + b"\n" + kind + public).digest()[:4]


def verifier_key(name: str, kind: bytes, public: bytes) -> str:
    """Return the one-line form of a key, as settings and policies have it."""
    return f"{name}+{key_id(name, kind, public).hex()}+{base64.b64encode(kind + public).decode()}"


def parse_verifier_key(text: str, kind: bytes) -> tuple[str, bytes]:
    """Return name and public key of a verifier key of this kind."""
    name, _, rest = text.strip().partition("+")
    content = _decode(rest.partition("+")[2])
    require(verifier_key(name, kind, content[1:]) == text.strip(), f"{text!r} is not a verifier key")
    return name, content[1:]


def is_signed(checkpoint: HubCheckpoint, name: str, public: bytes) -> bool:
    """Return whether a log's key signed; raise ``ClauseViolation`` if its signature does not verify."""
    for line in _lines_of(checkpoint, name, LOG_KEY, public):
        _verify(public, checkpoint.text, line.signature, name)
        return True
    return False


def cosigned_at(checkpoint: HubCheckpoint, name: str, public: bytes) -> int | None:
    """Return when a witness cosigned, or None; raise ``ClauseViolation`` if it did so wrongly."""
    for line in _lines_of(checkpoint, name, WITNESS_KEY, public):
        time = int.from_bytes(line.signature[:8], "big")
        message = b"cosignature/v1\ntime " + str(time).encode() + b"\n" + checkpoint.text
        _verify(public, message, line.signature[8:], name)
        return time
    return None


def _lines_of(checkpoint: HubCheckpoint, name: str, kind: bytes, public: bytes) -> list[SignatureLine]:
    wanted = key_id(name, kind, public)
    found = [line for line in checkpoint.lines if (line.name, line.key_id) == (name, wanted)]
    require(len(found) <= 1, f"{len(found)} signature lines of one key of {name} (C2SP signed-note)")
    return found


def _verify(public: bytes, message: bytes, signature: bytes, name: str) -> None:
    try:
        VerifyKey(public).verify(message, signature)
    except (BadSignatureError, ValueError):
        raise ClauseViolation(f"the signature of {name} does not verify (C2SP signed-note)") from None
