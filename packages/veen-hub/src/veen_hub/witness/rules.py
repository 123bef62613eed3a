"""The checks of ``add-checkpoint``, in the order of the specification (C2SP tlog-witness).

=====  =======================================================================================
400    the request is malformed
404    the origin is unknown
403    no signature verifies under a key of this log, or one of these keys has an invalid one
400    the old size is larger than the checkpoint's
409    the old size is not that of the newest cosigned checkpoint; the body is that size
422    the consistency proof does not verify
409    the size is that of the newest cosigned checkpoint and the root is not
200    the body is the cosignature
=====  =======================================================================================

C2SP says nothing about the body of the second 409. The body is a text here and not a size: a log that reads
a size would send the same request again. A later draft of C2SP has 422 instead, and so has
sigsum-witness; a log must treat both as a refusal for good.

For equal sizes RFC 6962's proof is empty, and nothing remains to be verified but the roots. A log that the
witness has never cosigned has size 0 and the root of the empty tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from veen_core.errors import DecodeError, ProofError, SignatureError
from veen_core.tlog.add_checkpoint import SIZE_CONTENT_TYPE, AddCheckpoint, parse_add_checkpoint
from veen_core.tlog.note import NoteKey, NoteSignature, verified_signatures
from veen_core.tlog.tree import EMPTY_ROOT, verify_consistency
from veen_core.tlog.tree_head import TreeHead

TEXT: Final = "text/plain; charset=utf-8"

LogKeys = Mapping[str, Sequence[NoteKey]]
"""The keys that the witness trusts, by origin."""


class WitnessRefusal(Exception):  # noqa: N818 - a refusal is a normal answer of the protocol
    """An answer other than 200."""

    def __init__(self, status: int, body: str, content_type: str = TEXT) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.content_type = content_type


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request that passed every check that needs no state."""

    request: AddCheckpoint
    signatures: tuple[NoteSignature, ...]
    """The signatures of the log's keys, which all verified."""

    @property
    def head(self) -> TreeHead:
        return self.request.checkpoint.head


@dataclass(frozen=True, slots=True)
class NewestCosigned:
    """Size and root of the newest cosigned checkpoint of a log."""

    size: int = 0
    root: bytes = EMPTY_ROOT


def check_request(body: bytes, logs: LogKeys) -> SignedRequest:
    """Check what needs no state: form, origin, signatures, and the order of the sizes."""
    try:
        request = parse_add_checkpoint(body)
    except DecodeError as exc:
        raise WitnessRefusal(400, f"{exc}\n") from None
    checkpoint = request.checkpoint
    keys = logs.get(checkpoint.head.origin)
    if keys is None:
        raise WitnessRefusal(
            404, "this witness does not know the log; its operator adds it to witness.yaml\n"
        )
    try:
        signatures = verified_signatures(checkpoint.note, keys)
    except SignatureError as exc:
        raise WitnessRefusal(403, f"{exc}\n") from None
    if not signatures:
        raise WitnessRefusal(403, "none of the signatures is by a key that this witness trusts for the log\n")
    if request.old_size > checkpoint.head.size:
        raise WitnessRefusal(
            400, f"the old size {request.old_size} is larger than the checkpoint's, {checkpoint.head.size}\n"
        )
    return SignedRequest(request, tuple(signatures.values()))


def check_against(known: NewestCosigned, signed: SignedRequest) -> None:
    """Check a request against the newest cosigned checkpoint; comparing and persisting must be one step."""
    request, head = signed.request, signed.head
    if request.old_size != known.size:
        raise WitnessRefusal(409, f"{known.size}\n", SIZE_CONTENT_TYPE)
    if head.size == known.size and not request.proof:
        if head.root != known.root:
            raise WitnessRefusal(409, f"the witness knows another root of the tree of {head.size} leaves\n")
        return
    try:
        verify_consistency(request.old_size, head.size, request.proof, known.root, head.root)
    except ProofError as exc:
        raise WitnessRefusal(422, f"{exc}\n") from None
