"""Subjects of a hub in a NATS account (DR0), and which endpoint each one stands for.

    <prefix>.submit.<label_hex>   messages of one label; DR0's subject, below the hub's prefix
    <prefix>.submit               a sequence with messages of several labels (H14)
    <prefix>.stream               and receipt, proof, consistency, checkpoint, status
    <prefix>.follow.<label_hex>   a live stream from the entry in header VEEN-From on (H15)
    <prefix>.flow.<id>            what a follower has read: see ``flow``
    <prefix>.look.<id>            where a hub hears from another one with its prefix before it subscribes
    <prefix>.call                 every other endpoint; headers VEEN-Method and VEEN-Path name it

The prefix is ``veen.<hub_id>`` unless the operator sets another, so that hubs in one account do not collide.
An empty prefix gives DR0's bare subjects.
"""

from __future__ import annotations

import re
from typing import Final

from veen_core.errors import ApiError, DecodeError
from veen_core.ids import HubId, Label
from veen_core.rejection import Code

SUBMIT: Final = "submit"
FOLLOW: Final = "follow"
FLOW: Final = "flow"
LOOK: Final = "look"
CALL: Final = "call"
NAMED: Final = {
    SUBMIT: ("POST", "/v1/submit"),
    "stream": ("POST", "/v1/stream"),
    "receipt": ("POST", "/v1/receipt"),
    "proof": ("POST", "/v1/proof"),
    "consistency": ("POST", "/v1/consistency"),
    "checkpoint": ("POST", "/v1/checkpoint"),
    "status": ("GET", "/v1/status"),
}
"""Method and path of the endpoints with a subject of their own."""
SUBJECT_OF: Final = {endpoint: name for name, endpoint in NAMED.items()}
METHOD_HEADER: Final = "VEEN-Method"
PATH_HEADER: Final = "VEEN-Path"
FROM_HEADER: Final = "VEEN-From"
MAX_PREFIX_CHARACTERS: Final = 128
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*", re.ASCII)


def default_prefix(hub_id: HubId) -> str:
    """Return the prefix of a hub whose operator sets none."""
    return f"veen.{hub_id.hex()}"


def is_prefix(text: str) -> bool:
    """Return whether a text may be a prefix: words of letters, digits, - and _, with dots between."""
    return not text or (len(text) <= MAX_PREFIX_CHARACTERS and _PREFIX.fullmatch(text) is not None)


def below(prefix: str, subject: str) -> str:
    """Return a subject below a prefix."""
    return f"{prefix}.{subject}" if prefix else subject


def label_in(subject: str) -> Label:
    """Return the label that ends a subject; raises E.BAD_REQUEST."""
    try:
        return Label.from_hex(subject.rpartition(".")[2])
    except DecodeError as exc:
        raise ApiError(Code.BAD_REQUEST, f"the subject does not end with a label in hex: {exc}") from None
