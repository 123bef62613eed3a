"""A role of a recorder that is connected to its hub, and the labels of its streams."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from veen_cli.record.role_file import RoleFile
from veen_core.errors import ConfigError
from veen_core.ids import Epoch, Label
from veen_core.keys import DhKey
from veen_core.stream import stream_id
from veen_hub.client import Hub, Identity, Retry, Stream
from veen_hub.client.hub_log import NoHubCheckpointError
from veen_hub.client.roles import connect_role, dh_keys_of
from veen_overlays.recorder.profile import RecorderProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLabel:
    """One label of a recorder stream; a hub with epochs has one per epoch."""

    stream: str
    position: int
    """Index of the stream among those that were asked for."""
    epoch: Epoch
    label: Label


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSession:
    """A connected role."""

    file: RoleFile
    hub: Hub
    identity: Identity
    readers: tuple[DhKey, ...]

    @property
    def profile(self) -> RecorderProfile:
        return self.file.role.profile

    @property
    def keys(self) -> tuple[DhKey, ...]:
        """All keys that may open the streams."""
        return (*self.readers, *self.identity.dh_keys)

    def stream(self, name: str) -> Stream:
        """Return a stream; messages to it are sealed to the recorder's reader."""
        return self.hub.stream(name, to=self.file.role.recipient, readers=self.readers)

    def chosen(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the streams that were asked for, by default all of the recorder."""
        known = self.profile.all_streams
        for name in names:
            if name not in known:
                raise ConfigError(f"{name} is no stream of this recorder; it has {', '.join(known)}")
        return tuple(dict.fromkeys(names)) or known

    async def labels(self, names: Sequence[str], *, may_be_new: bool = False) -> list[RecordedLabel]:
        """Return the labels of streams, in order of streams and epochs.

        At a hub with epochs, the complete list of labels in the hub log says which epochs have entries (P1).
        With ``may_be_new``, a hub that has no such list yet has no entries.
        """
        found: list[RecordedLabel] = []
        known: set[Label] | None = None
        for position, name in enumerate(names):
            epochs = self.hub.epoch_labels(stream_id(name))
            if epochs is None:
                label = self.hub.stream(name).label()
                found.append(RecordedLabel(stream=name, position=position, epoch=Epoch(0), label=label))
                continue
            if known is None:
                known = await self._listed_labels(may_be_new=may_be_new)
            window = await epochs.confirmed()
            for number in range(epochs.since, window.stop):
                label = epochs.label_of(Epoch(number))
                if label in known or number in window:
                    found.append(
                        RecordedLabel(stream=name, position=position, epoch=Epoch(number), label=label)
                    )
        return found

    async def _listed_labels(self, *, may_be_new: bool) -> set[Label]:
        try:
            return set((await self.hub.label_heads()).table.newest)
        except NoHubCheckpointError:
            if may_be_new:
                return set()
            raise


@asynccontextmanager
async def open_session(file: RoleFile) -> AsyncIterator[RecorderSession]:
    """Unlock the keys of a role and connect to its hub."""
    identity = Identity.of(file.unlock(file.access.client))
    readers = dh_keys_of(file.access.readers, file.unlock)
    retry = Retry(max_attempts=1_000, deadline=file.wait)
    async with connect_role(file.access, identity, retry=retry) as hub:
        yield RecorderSession(file=file, hub=hub, identity=identity, readers=readers)
