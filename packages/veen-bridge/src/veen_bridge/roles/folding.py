"""Folding a stream of a hub to its end: under one label, or over all epochs (RESOLUTIONS P8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from veen_core.keys import DhKey
from veen_hub.client import Hub, Stream
from veen_overlays import Overlay, SummaryStore
from veen_overlays.live import EpochView, Materializer

S = TypeVar("S")


async def folded(
    overlay: Overlay[S], hub: Hub, stream: Stream, keys: Sequence[DhKey], store: SummaryStore
) -> Materializer[S] | EpochView[S]:
    """The overlay's view of a stream, folded to its end; ``store`` saves reading the same entries again."""
    epochs, reader = hub.epoch_labels(stream.id), hub.log_reader()
    view: Materializer[S] | EpochView[S] = (
        Materializer(overlay, stream.label(), reader, key=keys, store=store)
        if epochs is None
        else EpochView(overlay, epochs, reader, key=keys, store=store)
    )
    await view.open()
    await view.catch_up()
    return view
