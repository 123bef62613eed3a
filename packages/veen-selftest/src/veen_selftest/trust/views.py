"""One hub log for all clients: it only grows, and every client sees the same one (P1)."""

from __future__ import annotations

import threading
from typing import Final

from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.hub_log_reader import PeerHubLogView, fetch_checkpoint
from veen_selftest.peers.note_verifier import HubCheckpoint
from veen_selftest.runner.check import Check, ClauseViolation, require
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import HUB_LOG
from veen_selftest.trust.coverage import write
from veen_selftest.trust.proofs import ask_proof

TURNS: Final = 8


class CheckpointWatch:
    """All hub checkpoints of one hub that were seen, by any client; used from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roots: dict[int, bytes] = {}
        self._unchecked: set[int] = set()
        """Sizes that were not compared with a tree yet."""
        self.newest: HubCheckpoint | None = None

    def add(self, checkpoint: HubCheckpoint) -> None:
        """Add a hub checkpoint of any age; raise ``ClauseViolation`` if another one has the same size."""
        with self._lock:
            known = self._roots.setdefault(checkpoint.size, checkpoint.root)
            if known != checkpoint.root:
                raise ClauseViolation(
                    f"the hub signed two roots at size {checkpoint.size}: two histories (P1)"
                )
            self._unchecked.add(checkpoint.size)
            if self.newest is None or checkpoint.size > self.newest.size:
                self.newest = checkpoint

    def see(self, hub: HttpHub) -> PeerHubLogView:
        """Fetch the hub checkpoint that is served now; require that it continues the newest one seen."""
        before, now = self.newest, fetch_checkpoint(hub)
        if before is not None and now.size < before.size:
            raise ClauseViolation(f"the hub log shrank from {before.size} to {now.size} entries (P1)")
        self.add(now)
        view = PeerHubLogView(hub, now)
        if before is not None:
            view.require_start(before.size, before.root)
        return view

    def check_all(self, view: PeerHubLogView) -> None:
        """Require that every hub checkpoint seen so far is the start of this tree.

        An earlier call has shown that each checkpoint up to then is the start of the largest one. Of these
        only the largest is compared again.
        """
        for size in sorted(self._unchecked):
            require(size <= view.size, f"the hub log shrank from {size} to {view.size} entries (P1)")
            view.require_start(size, self._roots[size])
        self._unchecked = {max(self._unchecked, default=0)} & self._roots.keys()


def _append_only(context: CheckContext) -> None:
    """The hub log never shrinks, and each hub checkpoint continues all before it (P1)."""
    hub = context.hub(HUB_LOG)
    writer = context.writer(hub)
    watch = CheckpointWatch()
    for turn in range(TURNS):
        write(context, writer)
        watch.see(hub)
        hub.accept(writer.next())
        watch.see(hub)
        context.progress(turn + 1, TURNS)
    view = watch.see(hub)
    watch.check_all(view)
    view.check_root()


def _one_view(context: CheckContext) -> None:
    """Two clients see one hub log: the smaller of two trees is the start of the larger (P1)."""
    hub = context.hub(HUB_LOG)
    other = hub.second_client()
    writer = context.writer(hub)
    for _turn in range(2):
        _receipt, mine = write(context, writer)
        theirs = PeerHubLogView(other, fetch_checkpoint(other))
        theirs.check_root()
        larger, smaller = (theirs, mine) if theirs.size >= mine.size else (mine, theirs)
        larger.require_start(smaller.size, smaller.checkpoint.root)
        for client in (hub, other):
            _answer, checkpoint = ask_proof(client, writer.label)
            PeerHubLogView(client, checkpoint).require_start(mine.size, mine.checkpoint.root)


CHECKS: Final = (
    Check("hub-log.append-only", "P1", _append_only),
    Check("hub-log.one-view", "P1", _one_view),
)
