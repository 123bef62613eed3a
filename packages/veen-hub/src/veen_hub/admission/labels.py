"""Which stream a label belongs to, as far as the hub can know (H4).

The hub knows the stream ids in its configuration and in the tokens it was given, and derives their labels for
the epochs in the skew window. A label of a stream that it does not know is opaque, and always current.

A label can be told to be of the right stream and a wrong epoch only by trying epochs. That is done for a
few streams and a few epochs, so that a refusal costs little: see ``NEAR_STREAMS`` and ``NEAR_EPOCHS``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from veen_core import stream
from veen_core.ids import Epoch, Label, RoutingKey, StreamId, UnixTime

NEAR_EPOCHS: Final = 64
"""How far outside the window a label is still recognised: right stream, wrong epoch."""
NEAR_STREAMS: Final = 16
"""Of how many streams at most; together some 2,000 hashes, 3 ms."""
REMEMBERED: Final = 4_096
"""Labels that were looked for in vain in this epoch."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the hub knows of a label: its stream, if any, and whether its epoch is accepted now."""

    stream: StreamId | None
    epoch: int
    current: bool


UNKNOWN: Final = Place(None, 0, True)


class LabelMap:
    """Labels of every known stream in the current window; each epoch's are derived once."""

    def __init__(self, routing_key: RoutingKey, epoch_sec: int, max_skew_sec: int) -> None:
        self._routing_key = routing_key
        self._epoch_sec = epoch_sec
        self._max_skew_sec = max_skew_sec
        self._streams: set[StreamId] = set()
        self._by_epoch: dict[int, dict[Label, Place]] = {}
        self._turned_at: UnixTime | None = None
        self._found: dict[tuple[Label, tuple[StreamId, ...]], Place] = {}

    def learn(self, streams: Iterable[StreamId]) -> None:
        """From the configuration and from tokens."""
        fresh = set(streams) - self._streams
        self._streams |= fresh
        self._found.clear()
        for epoch, labels in self._by_epoch.items():
            labels.update(self._places(fresh, epoch))

    def _places(self, streams: Iterable[StreamId], epoch: int) -> dict[Label, Place]:
        return {self._label(one, epoch): Place(one, epoch, True) for one in streams}

    def _label(self, candidate: StreamId, epoch: int) -> Label:
        return stream.label(self._routing_key, candidate, Epoch(epoch))

    def _window(self, now: UnixTime) -> range:
        return stream.epoch_window(now, self._epoch_sec, self._max_skew_sec)

    def _turn(self, now: UnixTime) -> None:
        if now == self._turned_at:
            return
        self._turned_at = now
        window, held = self._window(now), self._by_epoch
        if list(held) != list(window):
            self._by_epoch = {
                epoch: held[epoch] if epoch in held else self._places(self._streams, epoch)
                for epoch in window
            }
            self._found.clear()

    def place(self, label: Label, now: UnixTime, streams: Collection[StreamId] = ()) -> Place:
        """Where a label stands; ``streams`` are those of the token it came with."""
        self._turn(now)
        for labels in self._by_epoch.values():
            if (found := labels.get(label)) is not None:
                return found
        return self._near(label, now, tuple(streams)) if self._epoch_sec else UNKNOWN

    def _near(self, label: Label, now: UnixTime, streams: tuple[StreamId, ...]) -> Place:
        if (held := self._found.get((label, streams))) is not None:
            return held
        candidates = streams or tuple(self._streams)
        current = stream.epoch_at(now, self._epoch_sec)
        near = range(max(0, current - NEAR_EPOCHS), current + NEAR_EPOCHS + 1)
        searched = candidates if len(candidates) <= NEAR_STREAMS else ()
        matches = (Place(c, e, False) for c in searched for e in near if self._label(c, e) == label)
        if len(self._found) >= REMEMBERED:
            self._found.clear()
        self._found[label, streams] = found = next(matches, UNKNOWN)
        return found

    def stream_of(self, label: Label, first_ts: UnixTime, candidates: Iterable[StreamId]) -> StreamId | None:
        """Whose label it is, of any epoch, by the time of its first entry."""
        window = self._window(first_ts)
        return next((c for c in candidates for e in window if self._label(c, e) == label), None)

    def previous(self, label: Label) -> Label | None:
        """The stream's label in the epoch before, if the hub can derive it (H9)."""
        for epoch, labels in self._by_epoch.items():
            if (found := labels.get(label)) is not None and found.stream is not None and epoch > 0:
                return self._label(found.stream, epoch - 1)
        return None
