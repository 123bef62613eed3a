"""Files of other programs that lie next to VEEN files, recognized so that an error can name them."""

from __future__ import annotations

import json
import re
from typing import Final

PLAIN_TEXT: Final = "plain text"
_LMDB: Final = b"\xde\xc0\xef\xbe"
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]")
_SAMPLE_BYTES: Final = 1_048_576


def describe_foreign(data: bytes) -> str | None:
    """Say what the file is and which program reads it; None if it is not recognized."""
    if data.startswith(b"PAR1"):
        return "a Parquet file: read it with `veen spark` or any Parquet reader"
    if data[16:20] == _LMDB:
        return "an LMDB database, an index or view that is derived from the log: `veen hub fsck` checks it"
    if data.startswith(_LMDB):
        return "LMDB's lock file, which contains nothing of the log"
    return _describe_text(data)


def _describe_text(data: bytes) -> str | None:
    """Describe UTF-8 text; VEEN's arrays and maps begin with bytes that UTF-8 text cannot begin with."""
    try:
        text = data[:_SAMPLE_BYTES].decode()
    except UnicodeDecodeError as exc:
        if exc.start < _SAMPLE_BYTES - 4 or len(data) <= _SAMPLE_BYTES:
            return None
        text = data[: exc.start].decode()
    if _CONTROL.search(text) is not None:
        return None
    if text.startswith("-----BEGIN "):
        return "PEM text: read it with `openssl`"
    if text.startswith("<"):
        return "XML or HTML text"
    return "JSON text: read it with `jq`" if _is_json(text) else PLAIN_TEXT


def _is_json(text: str) -> bool:
    """Return whether the text is one JSON value, or one on each line."""
    first = text.split("\n", 1)[0]
    if not text.startswith(("{", "[")):
        return False
    if first.strip() in ("{", "["):
        return True
    try:
        json.loads(first)
    except (ValueError, RecursionError):
        return False
    return True
