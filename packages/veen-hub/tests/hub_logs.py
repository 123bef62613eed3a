"""What tests of the hub log share: its key and origin, its checkpoints, and a reader of its tiles."""

from __future__ import annotations

import shutil
from pathlib import Path

from veen_core import stream
from veen_core.hub_identity import new_identity
from veen_core.hub_log import LabelHead, origin_of, verify_hub_checkpoint
from veen_core.ids import HubPk, UnixTime
from veen_core.tlog.note import ED25519, NoteKey
from veen_core.tlog.tiles import ENTRIES, TILE_WIDTH, Tile, decode_bundle, node_lookup
from veen_core.tlog.tree import tree_at
from veen_core.tlog.tree_head import SignedHead, parse_signed_head

from .people import BORN, HUB_KEY
from .serving import Calls, until

HUB_ID = stream.hub_id(HubPk(HUB_KEY.public))
ORIGIN = origin_of(HUB_ID)
HUB_VKEY = NoteKey(ORIGIN, ED25519, HUB_KEY.public).text
IDENTITY = new_identity(HUB_KEY, UnixTime(BORN))
AT_ONCE = {"hub_log__max_entries": 1}
"""Settings of a hub that makes a hub checkpoint after every batch."""


def published(hub: Calls) -> SignedHead | None:
    """The hub checkpoint that the hub serves, verified."""
    answer = hub.get("/log/checkpoint")
    if answer.status == 404:
        return None
    assert answer.status == 200, answer
    signed = parse_signed_head(answer.body)
    verify_hub_checkpoint(IDENTITY, signed, origin=signed.head.origin)
    return signed


def published_size(hub: Calls) -> int:
    signed = published(hub)
    return signed.head.size if signed is not None else 0


def wait_for_size(hub: Calls, size: int) -> SignedHead:
    """Wait until the hub serves a hub checkpoint of this size or a larger one."""
    until(lambda: published_size(hub) >= size, f"the hub log has {size} entries")
    signed = published(hub)
    assert signed is not None
    return signed


def reason(hub: Calls) -> str:
    """Why the hub is not ready, for its operator; empty if it is."""
    answer = hub.get("/readyz")
    return "" if answer.status == 200 else str(answer.json["why"])


def cosigners(signed: SignedHead) -> set[str]:
    """Names under the checkpoint, except the log's own."""
    return {line.name for line in signed.note.signatures} - {signed.head.origin}


def read_tile(hub: Calls, tile: Tile) -> bytes:
    answer = hub.get(f"/log/tile/{tile.path}")
    assert answer.status == 200, (tile.path, answer)
    return answer.body


def read_tree(hub: Calls, size: int) -> list[LabelHead]:
    """Read all entries from bundles, check that tiles and bundles lead to one root, and return them."""
    signed = published(hub)
    assert signed is not None
    lookup = node_lookup(signed.head.size, lambda tile: read_tile(hub, tile))
    assert tree_at(signed.head.size, lookup).root == signed.head.root
    entries: list[bytes] = []
    for index in range(-(-size // TILE_WIDTH)):
        width = min(TILE_WIDTH, size - index * TILE_WIDTH)
        entries += decode_bundle(read_tile(hub, Tile(ENTRIES, index, width)))
    return [LabelHead.decode(entry) for entry in entries]


def copy_directory(root: Path, to: Path) -> Path:
    """Copy the data directory of a stopped hub, as a backup or a snapshot does."""
    shutil.copytree(root, to)
    return to
