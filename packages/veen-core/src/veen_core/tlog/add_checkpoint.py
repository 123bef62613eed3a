"""The request by which a log asks a witness to cosign its newest checkpoint (C2SP tlog-witness)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from veen_core.errors import DecodeError, EncodeError
from veen_core.tlog.note import MAX_NOTE_BYTES, decode_hash, encode_hash
from veen_core.tlog.tree import MAX_PROOF_HASHES
from veen_core.tlog.tree_head import SignedHead, parse_signed_head, parse_size

PATH: Final = "/add-checkpoint"
SIZE_CONTENT_TYPE: Final = "text/x.tlog.size"
"""Content type of the answer with the size of the latest cosigned checkpoint."""
MAX_REQUEST_BYTES: Final = MAX_NOTE_BYTES + 4_096
"""Bytes of the largest note, and room for the old size and 63 hashes of 45 bytes each."""
_WHERE: Final = "add-checkpoint request (C2SP tlog-witness)"


@dataclass(frozen=True, slots=True)
class AddCheckpoint:
    """The request: size that the witness cosigned last, consistency proof from that size, new checkpoint."""

    old_size: int
    proof: tuple[bytes, ...]
    checkpoint: SignedHead

    def encode(self) -> bytes:
        if len(self.proof) > MAX_PROOF_HASHES:
            raise EncodeError(
                f"{_WHERE}: the proof has {len(self.proof)} hashes, at most {MAX_PROOF_HASHES} are allowed"
            )
        lines = [f"old {self.old_size}", *map(encode_hash, self.proof), ""]
        return "".join(f"{line}\n" for line in lines).encode() + self.checkpoint.encode()


def parse_add_checkpoint(data: bytes) -> AddCheckpoint:
    """Parse the request; a ``DecodeError`` is answered with 400."""
    if len(data) > MAX_REQUEST_BYTES:
        raise DecodeError(f"has {len(data)} bytes, at most {MAX_REQUEST_BYTES} are allowed", where=_WHERE)
    head, separator, note = data.partition(b"\n\n")
    if not separator:
        raise DecodeError("has no empty line before the checkpoint", where=_WHERE)
    try:
        old, *proof = head.decode("ascii").split("\n")
    except UnicodeDecodeError:
        raise DecodeError("has bytes before the checkpoint that are not ASCII", where=_WHERE) from None
    if not old.startswith("old "):
        raise DecodeError("does not start with the old size", where=_WHERE)
    if len(proof) > MAX_PROOF_HASHES:
        raise DecodeError(
            f"has a proof of {len(proof)} hashes, at most {MAX_PROOF_HASHES} are allowed", where=_WHERE
        )
    return AddCheckpoint(
        parse_size(old.removeprefix("old "), _WHERE),
        tuple(decode_hash(line, _WHERE) for line in proof),
        parse_signed_head(note),
    )
