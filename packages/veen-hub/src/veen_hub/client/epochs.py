"""Where a stream whose label changes with every epoch was written (§12).

Labels do not tell their epochs, and their records do not tell their streams. So the epochs that were written
in are noted by stream, before a message leaves, until all that was sent under their labels is answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from veen_core import stream
from veen_core.ids import Epoch, StreamId
from veen_core.wire import Wire, int_map
from veen_hub.client.link import Link
from veen_hub.client.store import update


def window(link: Link) -> range:
    """The epochs whose labels take messages now."""
    return stream.epoch_window(link.time.now(), link.profile.epoch_sec, link.limits.max_epoch_skew_sec)


@int_map("epochs_record", section="12")
@dataclass(frozen=True, slots=True, kw_only=True)
class EpochsRecord(Wire):
    """The epochs of one stream under whose labels a message may be unanswered."""

    ver: Literal[1] = 1
    epochs: tuple[Epoch, ...]


class OpenEpochs:
    """The epochs of one stream under whose labels a message may be unanswered; kept across processes."""

    def __init__(self, link: Link, stream_id: StreamId) -> None:
        self._link = link
        self._name = f"epochs-{stream_id.hex()}"
        self._known: tuple[Epoch, ...] | None = None
        self._noted: set[Epoch] = set()

    async def before(self, epoch: Epoch) -> list[Epoch]:
        """Those that are past, oldest first."""
        link = self._link
        if self._known is None:
            self._known = _decode(await link.workers.run(link.store.load, link.hub_id, self._name))
        return [one for one in self._known if one < epoch]

    async def note(self, epoch: Epoch) -> None:
        """Before anything is sent under the epoch's label, which must be owned."""
        if epoch not in self._noted:
            await self._change(lambda epochs: epochs | {epoch})
            self._noted.add(epoch)

    async def settled(self, epoch: Epoch) -> None:
        """Nothing is open there, and nothing will be."""
        await self._change(lambda epochs: epochs - {epoch})

    async def _change(self, change: Callable[[set[Epoch]], set[Epoch]]) -> None:
        def changed(content: bytes | None) -> bytes:
            self._known = tuple(sorted(change(set(_decode(content)))))
            return EpochsRecord(epochs=self._known).encode()

        link = self._link
        await link.workers.run(
            update, link.store, link.hub_id, self._name, changed, patience=link.lock_timeout
        )


def _decode(content: bytes | None) -> tuple[Epoch, ...]:
    return EpochsRecord.decode(content).epochs if content is not None else ()
