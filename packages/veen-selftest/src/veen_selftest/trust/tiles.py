"""The hub log as tiles: content, partial tiles, caching, and paths that do not exist (C2SP tlog-tiles)."""

from __future__ import annotations

from typing import Final

from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.hub_log_reader import ENTRIES, PeerHubLogView, content_of
from veen_selftest.peers.tree_verifier import TILE_WIDTH, tile_path
from veen_selftest.runner.check import Check, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG
from veen_selftest.trust.checkpoints import max_age
from veen_selftest.trust.coverage import HeadCollector, size_of, wait_for_heads, write, write_labels

MAX_BUNDLES: Final = 64
"""Entry bundles that are read of a long hub log: the newest, and others at random."""
MIN_TILE_AGE_SEC: Final = 86_400
"""Least time that a cache may keep a tile, which never changes: "long-lived" (C2SP tlog-tiles)."""
FULL_TILE_ENTRIES: Final = TILE_WIDTH + 9
"""Entries after which a hub log has a full tile, a partial one and a second level."""
BAD_PATHS: Final = (
    "0/0",
    "0/0000",
    "00/000",
    "64/000",
    "-1/000",
    "0/000.p/0",
    "0/000.p/256",
    "0/000.p/01",
    "0/x000/000",
    "0/000/000",
    "entries/x000/000",
    "data/000",
)
"""Spellings that C2SP tlog-tiles does not have."""


def _recompute(context: CheckContext) -> None:
    """Entries hash to the tiles, tiles to those above them, and all of them to the signed root."""
    hub = context.hub(HUB_LOG)
    view = _grown(context, hub)
    count = -(-view.size // TILE_WIDTH)
    if count <= MAX_BUNDLES:
        HeadCollector().read(view)
        return
    for done, index in enumerate(_sample(context, count), 1):
        view.entries(index)
        context.progress(done, MAX_BUNDLES)


def _sample(context: CheckContext, count: int) -> set[int]:
    newest = {count - 2, count - 1}
    return newest | set(context.rng.sample(range(count - 2), MAX_BUNDLES - len(newest)))


def _grown(context: CheckContext, hub: HttpHub) -> PeerHubLogView:
    """Write until the log fills a tile, if the hub belongs to this run; otherwise write one label."""
    start = size_of(hub)
    count = FULL_TILE_ENTRIES - start if context.fleet.starts_hubs else 1
    return wait_for_heads(context, hub, write_labels(context, hub, max(1, count), "tile"), start)


def _partial(context: CheckContext) -> None:
    """A tile never changes, caches may keep it, and a partial one is the start of its full one."""
    hub = context.hub(HUB_LOG)
    writer = context.writer(hub)
    _receipt, before = write(context, writer)
    index = (before.size - 1) // TILE_WIDTH
    hashes, entries = before.hashes(0, index), before.entries(index)
    _receipt, _after = write(context, writer)
    again = PeerHubLogView(hub, before.checkpoint)
    require_equal(again.hashes(0, index), hashes, "a tile that was fetched again")
    require_equal(again.entries(index), entries, "an entry bundle that was fetched again")
    width = len(hashes)
    for level in (0, ENTRIES):
        answer = hub.get(tile_path(level, index, width))
        if answer.status == 404 and width < TILE_WIDTH:
            continue  # its full tile was fetched above
        path, kind = tile_path(level, index, width), answer.headers.get("content-type")
        require_equal((answer.status, kind), (200, "application/octet-stream"), f"answer to {path}")
        require(content_of(answer), f"{path} is empty (C2SP tlog-tiles)")
        require(
            (max_age(answer) or 0) >= MIN_TILE_AGE_SEC,
            f"a cache may not keep {path} for a day, although it never changes (C2SP tlog-tiles)",
        )


def _absent(context: CheckContext) -> None:
    """A tile that the tree does not have is answered with 404, and so is a path that is not a tile's."""
    hub = context.hub(HUB_LOG)
    _receipt, view = write(context, context.writer(hub))
    beyond = view.size // TILE_WIDTH + 1_000
    absent = [
        tile_path(level, index, width)
        for level, index, width in (
            (0, beyond, TILE_WIDTH),
            (0, beyond, 1),
            (ENTRIES, beyond, TILE_WIDTH),
            (ENTRIES, beyond, 1),
            (1, beyond, TILE_WIDTH),
            (8, 0, 1),
            (63, 0, TILE_WIDTH),
        )
    ]
    for path in (*absent, *(f"/log/tile/{path}" for path in BAD_PATHS)):
        answer = hub.get(path)
        require_equal(answer.status, 404, f"status of {path}, with {view.size} entries")
        require_equal(answer.error.code, "E.NOT_FOUND", f"code of {path}")


CHECKS: Final = (
    Check("hub-log.tiles", "P1, C2SP", _recompute),
    Check("hub-log.tiles.immutable", "P2, C2SP", _partial),
    Check("hub-log.tiles.absent", "P2, C2SP", _absent),
)
