"""Signed notes: a text, and the signatures of keys that have a name (C2SP signed-note).

Two kinds of keys sign: the key of a log signs the text itself, and the key of a witness signs the text with
the time of its signature (C2SP tlog-cosignature v1).
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from veen_core.errors import DecodeError, EncodeError, SignatureError
from veen_core.ids import Signature, UnixTime, VerifyKey
from veen_core.keys import SigningKey, is_valid

ED25519: Final = 0x01
"""Signature type of a log's key."""
COSIGNATURE: Final = 0x04
"""Signature type of a witness's key: Ed25519 over a header, the time and the text."""
MAX_SIGNATURES: Final = 64
"""Signatures in one note; at least 16 must be accepted (C2SP signed-note)."""
MAX_NOTE_BYTES: Final = 131_072
"""Enough for 16 signatures of a post-quantum algorithm, of almost 5 kB each (C2SP signed-note)."""
MAX_TIME: Final = 2**63 - 1
"""Latest time of a cosignature (C2SP tlog-cosignature)."""
_KEY_ID_SIZE: Final = 4
_TIME_SIZE: Final = 8
_DASH: Final = "\N{EM DASH}"
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f]")
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
"""Characters that UTF-8 cannot encode; Python has them in text from a command line or a file name."""
_NOTE: Final = "note (C2SP signed-note)"
_VKEY: Final = "verifier key (C2SP signed-note)"


@dataclass(frozen=True, slots=True)
class NoteSignature:
    """One signature line. Name and key id together name the key."""

    name: str
    key_id: bytes
    signature: bytes

    @property
    def line(self) -> str:
        return f"{_DASH} {self.name} {_encode_base64(self.key_id + self.signature)}\n"


@dataclass(frozen=True, slots=True)
class Note:
    """A text that ends with a newline, and its signatures. Parsing verifies none of them."""

    text: str
    signatures: tuple[NoteSignature, ...]

    def encode(self) -> bytes:
        if not 1 <= len(self.signatures) <= MAX_SIGNATURES:
            raise EncodeError(
                f"a note has 1 to {MAX_SIGNATURES} signatures, not {len(self.signatures)} (C2SP signed-note)"
            )
        data = (self.text + "\n" + "".join(signature.line for signature in self.signatures)).encode()
        if len(data) > MAX_NOTE_BYTES:
            raise EncodeError(f"a note has at most {MAX_NOTE_BYTES} bytes, not {len(data)}")
        return data

    def with_signatures(self, more: Iterable[NoteSignature]) -> Note:
        """Return the note with further signatures; of one key, only the signature given last is kept."""
        by_key = {(each.name, each.key_id): each for each in (*self.signatures, *more)}
        return Note(self.text, tuple(by_key.values()))


def parse_note(data: bytes) -> Note:
    """Parse a signed note; a ``DecodeError`` says what is wrong with it."""
    if len(data) > MAX_NOTE_BYTES:
        raise DecodeError(f"has {len(data)} bytes, at most {MAX_NOTE_BYTES} are allowed", where=_NOTE)
    try:
        whole = data.decode()
    except UnicodeDecodeError:
        raise DecodeError("is not UTF-8", where=_NOTE) from None
    if _CONTROL.search(whole):
        raise DecodeError("contains a control character", where=_NOTE)
    text, separator, lines = whole.rpartition("\n\n")
    if not separator:
        raise DecodeError("has no empty line between text and signatures", where=_NOTE)
    return Note(text + "\n", parse_signatures(lines))


def parse_signatures(lines: str | bytes) -> tuple[NoteSignature, ...]:
    """Parse one or more signature lines, such as a witness returns them."""
    if isinstance(lines, bytes):
        try:
            lines = lines.decode()
        except UnicodeDecodeError:
            raise DecodeError("is not UTF-8", where=_NOTE) from None
    if not lines.endswith("\n"):
        raise DecodeError("does not end with a newline", where=_NOTE)
    found = lines[:-1].split("\n")
    if len(found) > MAX_SIGNATURES:
        raise DecodeError(f"has {len(found)} signatures, at most {MAX_SIGNATURES} are allowed", where=_NOTE)
    return tuple(_parse_signature(line) for line in found)


def _parse_signature(line: str) -> NoteSignature:
    parts = line.split(" ")
    if len(parts) != 3 or parts[0] != _DASH:
        raise DecodeError("has a line that is not a signature", where=_NOTE)
    value = _decode_base64(parts[2], _NOTE)
    if len(value) <= _KEY_ID_SIZE:
        raise DecodeError("has a signature without content", where=_NOTE)
    return NoteSignature(check_name(parts[1], _NOTE), value[:_KEY_ID_SIZE], value[_KEY_ID_SIZE:])


def check_name(name: str, where: str) -> str:
    """Return a key name; raise ``DecodeError`` if it is empty or contains a space or a plus sign."""
    spaced = any(char.isspace() for char in name)
    if not name or "+" in name or spaced or _CONTROL.search(name) or _SURROGATE.search(name):
        raise DecodeError(f"{name[:80]!r} is not a key name", where=where)
    return name


@dataclass(frozen=True, slots=True)
class NoteKey:
    """A public key with its name and signature type: what C2SP calls a verifier key."""

    name: str
    kind: int
    public: VerifyKey

    @property
    def key_id(self) -> bytes:
        return sha256(f"{self.name}\n".encode() + bytes([self.kind]) + self.public).digest()[:_KEY_ID_SIZE]

    @property
    def text(self) -> str:
        """The one-line form, ``<name>+<key id in hex>+<base64>``."""
        return f"{self.name}+{self.key_id.hex()}+{_encode_base64(bytes([self.kind]) + self.public)}"

    def is_named_by(self, signature: NoteSignature) -> bool:
        """Return whether a signature line names this key; the signature itself is not verified."""
        return signature.name == self.name and signature.key_id == self.key_id

    def is_valid(self, text: str, signature: bytes) -> bool:
        """Return whether this key made the signature over the text."""
        time_size = _TIME_SIZE if self.kind == COSIGNATURE else 0
        if len(signature) != time_size + Signature.SIZE:
            return False
        message = text.encode()
        if self.kind == COSIGNATURE:
            if (time := cosigned_at(signature)) > MAX_TIME:
                return False
            message = _cosigned(text, time)
        return is_valid(self.public, message, Signature(signature[time_size:]))


def parse_key(text: str) -> NoteKey:
    """Parse a verifier key in its one-line form; only Ed25519 keys are known."""
    parts = text.split("+", 2)
    if len(parts) != 3:
        raise DecodeError("want <name>+<key id>+<base64>", where=_VKEY)
    name = check_name(parts[0], _VKEY)
    value = _decode_base64(parts[2], _VKEY)
    if not value or value[0] not in (ED25519, COSIGNATURE):
        raise DecodeError("its signature type is not Ed25519 (1) or cosignature/v1 (4)", where=_VKEY)
    if len(value) != 1 + VerifyKey.SIZE:
        raise DecodeError(f"want a public key of 32 bytes, found {len(value) - 1}", where=_VKEY)
    key = NoteKey(name, value[0], VerifyKey(value[1:]))
    if parts[1] != key.key_id.hex():
        raise DecodeError(f"its key id is {parts[1][:16]}, name and key give {key.key_id.hex()}", where=_VKEY)
    return key


def sign_note(key: SigningKey, name: str, text: str) -> NoteSignature:
    """Sign a note with the key of a log; raise ``EncodeError`` if no note can have this text or name."""
    _check_signable(name, text)
    return NoteSignature(name, NoteKey(name, ED25519, key.public).key_id, key.sign(text.encode()))


def cosign(key: SigningKey, name: str, text: str, now: UnixTime) -> NoteSignature:
    """Sign a checkpoint with the key of a witness (C2SP tlog-cosignature v1)."""
    _check_signable(name, text)
    if not 0 <= now <= MAX_TIME:
        raise EncodeError(f"a cosignature cannot have the time {now} (C2SP tlog-cosignature)")
    signature = now.to_bytes(_TIME_SIZE, "big") + key.sign(_cosigned(text, now))
    return NoteSignature(name, NoteKey(name, COSIGNATURE, key.public).key_id, signature)


def _check_signable(name: str, text: str) -> None:
    try:
        check_name(name, _NOTE)
    except DecodeError as exc:
        raise EncodeError(str(exc)) from None
    if not text.endswith("\n") or _CONTROL.search(text) or _SURROGATE.search(text):
        raise EncodeError(f"{_NOTE}: the text must be lines of UTF-8 without control characters")


def cosigned_at(signature: bytes) -> UnixTime:
    """Return the time of a cosignature."""
    return UnixTime(int.from_bytes(signature[:_TIME_SIZE], "big"))


def _cosigned(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()


def verified_signatures(note: Note, keys: Iterable[NoteKey]) -> dict[NoteKey, NoteSignature]:
    """Return which of the keys signed; signatures of other keys are ignored.

    If a cosigner signed several times, its newest cosignature is returned. Raise ``SignatureError`` if a
    signature of one of the keys does not verify. That none of the keys signed is no error here: the caller
    knows how many it needs.
    """
    lines: dict[tuple[str, bytes], set[bytes]] = {}  # a set: a repeated line costs one verification
    for line in note.signatures:
        lines.setdefault((line.name, line.key_id), set()).add(line.signature)
    found: dict[NoteKey, NoteSignature] = {}
    for key in keys:
        key_id = key.key_id
        signatures = lines.get((key.name, key_id), set())
        if not all(key.is_valid(note.text, signature) for signature in signatures):
            raise SignatureError(f"the signature of {key.name} does not verify (C2SP signed-note)")
        if signatures:  # a cosignature starts with its time
            found[key] = NoteSignature(key.name, key_id, max(signatures))
    return found


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode_base64(text: str, where: str) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DecodeError("contains text that is not base64", where=where) from None
    if _encode_base64(data) != text:
        raise DecodeError("contains base64 that is not canonical", where=where)
    return data


def encode_hash(digest: bytes) -> str:
    """Return a hash in base64, as checkpoints and proofs have it."""
    return _encode_base64(digest)


def decode_hash(text: str, where: str) -> bytes:
    """Parse a hash of 32 bytes in base64."""
    digest = _decode_base64(text, where)
    if len(digest) != sha256().digest_size:
        raise DecodeError(f"want a hash of 32 bytes, found {len(digest)}", where=where)
    return digest
