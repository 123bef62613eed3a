"""The end of a source at the time a query is submitted; a later execution reads exactly up to it.

The receipt of ``to_seq`` signs the root. The link leads to the hub checkpoint that was known at submission. A
query that is run again gives the same digest only if both are fixed with the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from veen_core.ids import HubId, Label, MmrRoot
from veen_overlays.query import canonical_json
from veen_overlays.query.result.coverage import Prefix
from veen_overlays.query.result.evidence import HubLogLink


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceEnd:
    """A prefix, the receipt that signs its root, and the proofs up to a hub checkpoint."""

    prefix: Prefix
    head: bytes | None
    """The encoded RECEIPT of ``to_seq``; None if the source has no entries."""
    link: HubLogLink | None = None

    def as_json(self) -> dict[str, Any]:
        return self.prefix.committed_json() | {
            "checkpoint": self.prefix.checkpoint,
            "head": None if self.head is None else self.head.hex(),
            "link": None if self.link is None else self.link.encode().hex(),
        }


def write_ends(ends: Sequence[SourceEnd]) -> str:
    """Return ends as canonical JSON."""
    return canonical_json.encode([end.as_json() for end in ends]).decode()


def read_ends(text: str) -> tuple[SourceEnd, ...]:
    """Return the ends that ``write_ends`` wrote."""
    items: Any = canonical_json.decode(text, max_bytes=2**26)
    return tuple(map(_read, items))


def _read(item: dict[str, Any]) -> SourceEnd:
    prefix = Prefix(
        stream=item["stream"],
        hub_id=HubId.from_hex(item["hub_id"]),
        label=Label.from_hex(item["label"]),
        epoch=item["epoch"],
        from_seq=item["from_seq"],
        to_seq=item["to_seq"],
        mmr_root=None if item["mmr_root"] is None else MmrRoot.from_hex(item["mmr_root"]),
        checkpoint=item["checkpoint"],
    )
    head, link = item["head"], item["link"]
    return SourceEnd(
        prefix=prefix,
        head=None if head is None else bytes.fromhex(head),
        link=None if link is None else HubLogLink.decode(bytes.fromhex(link)),
    )
