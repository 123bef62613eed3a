"""The label map: which stream a label belongs to, as far as the hub can know (H4).

The hub knows the stream ids in its configuration and in authorized tokens, and derives their labels
for the epochs in the skew window. A label of an unknown stream is opaque and always counts as current.

To recognise a label of a known stream in a wrong epoch, the map must try epochs. It tries few streams and
few epochs (``NEAR_STREAMS``, ``NEAR_EPOCHS``), so that a refusal stays cheap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from veen_core import stream
from veen_core.ids import Epoch, Label, RoutingKey, StreamId, UnixTime

NEAR_EPOCHS: Final = 64
"""Distance from the current epoch, in epochs, up to which a label is still recognised."""
NEAR_STREAMS: Final = 16
"""Most streams that a search tries; together with ``NEAR_EPOCHS`` some 2,000 hashes, 3 ms."""
MAX_SEARCHED: Final = 4_096
"""Labels whose search result is cached in the current epoch."""


@dataclass(frozen=True, slots=True)
class LabelInfo:
    """The facts that the hub knows about a label."""

    stream: StreamId | None
    epoch: int
    current: bool
    """Whether the label's epoch is accepted now."""


UNKNOWN: Final = LabelInfo(None, 0, True)


class LabelMap:
    """Labels of every known stream in the current window; owned by the sequencer's thread once it runs."""

    def __init__(self, routing_key: RoutingKey, epoch_sec: int, max_skew_sec: int) -> None:
        self._routing_key = routing_key
        self._epoch_sec = epoch_sec
        self._max_skew_sec = max_skew_sec
        self._streams: set[StreamId] = set()
        self._by_epoch: dict[int, dict[Label, LabelInfo]] = {}
        self._window_at: UnixTime | None = None
        self._searched: dict[tuple[Label, tuple[StreamId, ...]], LabelInfo] = {}

    def learn(self, streams: Iterable[StreamId]) -> None:
        """Add streams from the configuration, from a token or from a policy."""
        fresh = set(streams) - self._streams
        self._streams |= fresh
        self._searched.clear()
        for epoch, labels in self._by_epoch.items():
            labels.update(self._labels_of(fresh, epoch))

    def _labels_of(self, streams: Iterable[StreamId], epoch: int) -> dict[Label, LabelInfo]:
        return {self._label(one, epoch): LabelInfo(one, epoch, True) for one in streams}

    def _label(self, candidate: StreamId, epoch: int) -> Label:
        return stream.label(self._routing_key, candidate, Epoch(epoch))

    def _window(self, now: UnixTime) -> range:
        return stream.epoch_window(now, self._epoch_sec, self._max_skew_sec)

    def _move_window(self, now: UnixTime) -> None:
        if now == self._window_at:
            return
        self._window_at = now
        window, held = self._window(now), self._by_epoch
        if list(held) != list(window):
            self._by_epoch = {
                epoch: held[epoch] if epoch in held else self._labels_of(self._streams, epoch)
                for epoch in window
            }
            self._searched.clear()

    def look_up(self, label: Label, now: UnixTime, streams: Collection[StreamId] = ()) -> LabelInfo:
        """Find a label's stream and epoch; ``streams`` are those of the token it came with."""
        self._move_window(now)
        for labels in self._by_epoch.values():
            if (found := labels.get(label)) is not None:
                return found
        return self._search_near(label, now, tuple(streams)) if self._epoch_sec else UNKNOWN

    def _search_near(self, label: Label, now: UnixTime, streams: tuple[StreamId, ...]) -> LabelInfo:
        if (held := self._searched.get((label, streams))) is not None:
            return held
        candidates = streams or tuple(self._streams)
        current = stream.epoch_at(now, self._epoch_sec)
        near = range(max(0, current - NEAR_EPOCHS), current + NEAR_EPOCHS + 1)
        tried = candidates if len(candidates) <= NEAR_STREAMS else ()
        matches = (LabelInfo(c, e, False) for c in tried for e in near if self._label(c, e) == label)
        if len(self._searched) >= MAX_SEARCHED:
            self._searched.clear()
        self._searched[label, streams] = found = next(matches, UNKNOWN)
        return found

    def stream_of(self, label: Label, first_ts: UnixTime, candidates: Iterable[StreamId]) -> StreamId | None:
        """Find the stream of a label of any epoch, from the time of its first entry."""
        window = self._window(first_ts)
        return next((c for c in candidates for e in window if self._label(c, e) == label), None)

    def previous(self, label: Label) -> Label | None:
        """Return the stream's label in the epoch before, if the hub can derive it (H9)."""
        for epoch, labels in self._by_epoch.items():
            if (found := labels.get(label)) is not None and found.stream is not None and epoch > 0:
                return self._label(found.stream, epoch - 1)
        return None
