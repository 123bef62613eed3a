"""The verifier page: its bytes, their hash, and the page with evidence inside (ADR 0029).

The evidence is base64 of a JSON object, in an element that browsers do not execute. Base64 has no character
that HTML gives a meaning to, so no name, content or policy can become markup or a script.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

NAME: Final = "verify.html"
MAX_EVIDENCE_BYTES: Final = 64 * 1_048_576
"""Most bytes of evidence in one page; a browser holds them several times."""
_BEFORE: Final = b'<script type="text/plain" id="veen-evidence">'
_AFTER: Final = b"</script>"


def verifier_page() -> bytes:
    """Return the page without evidence."""
    return Path(__file__).with_name(NAME).read_bytes()


def verifier_page_sha256() -> str:
    """Return the SHA-256 of the page without evidence, in hex."""
    return sha256(verifier_page()).hexdigest()


def page_with_evidence(evidence: Mapping[str, bytes], *, hub_id: str | None, policy: str | None) -> bytes:
    """Return the page with these files inside.

    ``hub_id`` (or first hub_pk, in hex) and the text of a witness ``policy`` are what the sender proposes to
    trust; the page asks its reader to compare them.
    """
    import json  # noqa: PLC0415 - `veen version` needs the hash only

    total = sum(map(len, evidence.values()))
    if total > MAX_EVIDENCE_BYTES:
        raise ValueError(f"{total} bytes of evidence, a page holds at most {MAX_EVIDENCE_BYTES}")
    held = [{"name": name, "data": base64.b64encode(content).decode()} for name, content in evidence.items()]
    inside = json.dumps({"files": held, "hub": hub_id, "policy": policy})
    page = verifier_page()
    if page.count(_BEFORE + _AFTER) != 1:
        raise ValueError(f"{NAME} has no single place for evidence: build it again")
    return page.replace(_BEFORE + _AFTER, _BEFORE + base64.b64encode(inside.encode()) + _AFTER)
