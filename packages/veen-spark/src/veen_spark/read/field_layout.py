"""Where the fields of canonical MSGs and RECEIPTs lie, for thousands of them at once (§4.1, §4.3).

Both are arrays of fields whose sizes are fixed but for their integers and the ciphertext, so that numpy finds
every field of a batch in a dozen passes: a microsecond an entry, where decoding one at a time takes twenty.

This only ever accepts. Whatever it does not recognize as the canonical bytes is left to veen_core's decoders,
which decide, and word the error. A property test holds the two together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint64]
Mask = npt.NDArray[np.bool_]

PAD: Final = 256
"""So many bytes behind the last entry must be readable: fields are looked for before they are believed."""
_BSTR_32: Final = (0x58, 0x20)
_BSTR_64: Final = (0x58, 0x40)
_NULL: Final = 0xF6
_LEAST: Final = np.array([0, 24, 2**8, 2**16, 2**32], dtype=np.uint64)
"""The smallest value that may take a head of one, two, three, five or nine bytes (§3.1)."""
_WIDTH: Final = np.array([1, 2, 3, 5, 9], dtype=np.int64)
_SIGNED_MAX: Final = np.uint64(2**63 - 1)


class Receipts(NamedTuple):
    """Of each RECEIPT: whether it was recognized, its integers, and where its hashes begin."""

    ok: Mask
    label_at: Ints
    stream_seq: Ints
    leaf_at: Ints
    root_at: Ints
    hub_ts: Ints


class Msgs(NamedTuple):
    """Of each MSG, likewise; ``auth_at`` counts where ``gated`` says that there is one."""

    ok: Mask
    profile_at: Ints
    label_at: Ints
    client_at: Ints
    client_seq: Ints
    prev_ack: Ints
    gated: Mask
    auth_at: Ints
    ct_hash_at: Ints
    ct_at: Ints
    ct_size: Ints


def fixed(data: Bytes, at: Ints, size: int = 32) -> Bytes:
    """``size`` bytes at each place, one row each: copied as one item each, not byte by byte."""
    every = np.ndarray((len(data) - size + 1,), dtype=f"V{size}", buffer=data, strides=(1,))
    rows: Bytes = every[at].view(np.uint8).reshape(len(at), size)
    return rows


def uint(data: Bytes, at: Ints, width: int) -> Counts:
    """The big-endian number of ``width`` bytes at each place."""
    return fixed(data, at, width).view(f">u{width}").ravel().astype(np.uint64)


def _are(data: Bytes, at: Ints, expected: tuple[int, ...]) -> Mask:
    mask: Mask = data[at] == expected[0]
    for step, byte in enumerate(expected[1:], 1):
        mask = mask & (data[at + step] == byte)
    return mask


def _head(data: Bytes, at: Ints, major: int) -> tuple[Mask, Ints, Ints]:
    """The argument of a CBOR head in its shortest form, and where the head ends (§3.1)."""
    first = data[at].astype(np.int64) - (major << 5)
    ok: Mask = (first >= 0) & (first <= 27)
    form = np.where(ok & (first >= 24), first - 23, 0)
    value = np.where(ok, first, 0).astype(np.uint64)
    for number in range(1, 5):
        rows = np.flatnonzero(form == number)
        if rows.size:
            value[rows] = uint(data, at[rows] + 1, int(_WIDTH[number]) - 1)
    shortest = (form == 0) | (value >= _LEAST[form])
    ok = ok & shortest & (value <= _SIGNED_MAX)
    return ok, value.astype(np.int64), at + _WIDTH[form]


def receipts(data: Bytes, at: Ints, size: Ints) -> Receipts:
    """``87 01 label stream_seq leaf_hash mmr_root hub_ts hub_sig`` (§4.3)."""
    ok = _are(data, at, (0x87, 0x01, *_BSTR_32)) & (size >= 172)
    seq_ok, stream_seq, leaf_at = _head(data, at + 36, 0)
    root_at = leaf_at + 34
    ts_ok, hub_ts, sig_at = _head(data, root_at + 34, 0)
    ok &= seq_ok & ts_ok & (sig_at + 66 == at + size)
    ok &= _are(data, leaf_at, _BSTR_32) & _are(data, root_at, _BSTR_32) & _are(data, sig_at, _BSTR_64)
    return Receipts(ok, at + 4, stream_seq, leaf_at + 2, root_at + 2, hub_ts)


def msgs(data: Bytes, at: Ints, size: Ints) -> Msgs:
    """``8a 01 profile_id label client_id client_seq prev_ack auth_ref ct_hash ciphertext sig`` (§4.1)."""
    ok = _are(data, at, (0x8A, 0x01)) & (size >= 208)
    for step in (2, 36, 70):
        ok &= _are(data, at + step, _BSTR_32)
    seq_ok, client_seq, ack_at = _head(data, at + 104, 0)
    ack_ok, prev_ack, auth_at = _head(data, ack_at, 0)
    gated = _are(data, auth_at, _BSTR_32)
    ok &= seq_ok & ack_ok & (gated | (data[auth_at] == _NULL))
    hash_at = auth_at + np.where(gated, 34, 1)
    ct_ok, ct_size, ct_at = _head(data, hash_at + 34, 2)
    ok &= _are(data, hash_at, _BSTR_32) & ct_ok
    end = at + size - 66
    ok &= (ct_at <= end) & (ct_size == end - ct_at)
    ok &= _are(data, np.where(ok, end, at), _BSTR_64)
    return Msgs(
        ok, at + 4, at + 38, at + 72, client_seq, prev_ack, gated, auth_at + 2, hash_at + 2, ct_at, ct_size
    )
