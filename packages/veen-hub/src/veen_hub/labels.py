"""Which stream a label belongs to, as far as the hub can know (H4).

The hub knows the stream ids in its configuration and in the tokens it was given, and derives their labels for
the epochs in the skew window. A label of a stream that it does not know is opaque, and always current.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from veen_core import stream
from veen_core.ids import Epoch, Label, RoutingKey, StreamId, UnixTime

NEAR_EPOCHS: Final = 64
"""How far outside the window a token's label is still recognised: right stream, wrong epoch."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the hub knows of a label: its stream, if any, and whether its epoch is accepted now."""

    stream: StreamId | None
    epoch: int
    current: bool


UNKNOWN: Final = Place(None, 0, True)


class LabelMap:
    """Labels of every known stream in the current window; derived again when the epoch turns."""

    def __init__(self, routing_key: RoutingKey, epoch_sec: int, max_skew_sec: int) -> None:
        self._routing_key = routing_key
        self._epoch_sec = epoch_sec
        self._max_skew_sec = max_skew_sec
        self._streams: set[StreamId] = set()
        self._window = range(0)
        self._turned_at: UnixTime | None = None
        self._labels: dict[Label, tuple[StreamId, int]] = {}

    def learn(self, streams: Iterable[StreamId]) -> None:
        """From the configuration and from tokens."""
        fresh = set(streams) - self._streams
        self._streams |= fresh
        self._derive(fresh)

    def _derive(self, streams: Iterable[StreamId]) -> None:
        for candidate in streams:
            for epoch in self._window:
                self._labels[self._label(candidate, epoch)] = (candidate, epoch)

    def _label(self, candidate: StreamId, epoch: int) -> Label:
        return stream.label(self._routing_key, candidate, Epoch(epoch))

    def _turn(self, now: UnixTime) -> None:
        if now == self._turned_at:
            return
        self._turned_at = now
        window = stream.epoch_window(now, self._epoch_sec, self._max_skew_sec)
        if window != self._window:
            self._window, self._labels = window, {}
            self._derive(self._streams)

    def place(self, label: Label, now: UnixTime, streams: Iterable[StreamId] = ()) -> Place:
        """Where a label stands; ``streams`` are those of the token it came with."""
        self._turn(now)
        found = self._labels.get(label)
        if found is not None:
            return Place(found[0], found[1], True)
        return self._near(label, now, streams) if self._epoch_sec else UNKNOWN

    def _near(self, label: Label, now: UnixTime, streams: Iterable[StreamId]) -> Place:
        current = stream.epoch_at(now, self._epoch_sec)
        for candidate in streams:
            for epoch in range(max(0, current - NEAR_EPOCHS), current + NEAR_EPOCHS + 1):
                if self._label(candidate, epoch) == label:
                    return Place(candidate, epoch, False)
        return UNKNOWN

    def labels_of(self, candidate: StreamId, now: UnixTime) -> list[Label]:
        """A stream's labels in the window."""
        return [
            self._label(candidate, e) for e in stream.epoch_window(now, self._epoch_sec, self._max_skew_sec)
        ]

    def previous(self, label: Label) -> Label | None:
        """The stream's label in the epoch before, if the hub can derive it (H9)."""
        found = self._labels.get(label)
        return self._label(found[0], found[1] - 1) if found is not None and found[1] > 0 else None
