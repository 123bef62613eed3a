"""What an identity's state folder holds about hubs: records, checked as they are read (RESYNC0.4)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.identity.identity_folder import Folder
from veen_core.errors import DecodeError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label
from veen_core.wire import Wire
from veen_hub.client import FileStateStore
from veen_hub.client.state.records import HeldTokens, LabelRecord
from veen_hub.client.tokens import TOKENS_RECORD
from veen_hub.client.wire.connection import IDENTITY_RECORD

RECORD_SUFFIX = ".state"


def kind_of(name: str) -> type[Wire] | None:
    """Return the class of a record by its name; None for records that this module does not read."""
    if name in (IDENTITY_RECORD, TOKENS_RECORD):
        return HubIdentity if name == IDENTITY_RECORD else HeldTokens
    try:
        Label.from_hex(name)
    except DecodeError:
        return None
    return LabelRecord


class CheckedStateStore(FileStateStore):
    """The client's state store, with errors that name a damaged file."""

    def load(self, hub: HubId, name: str) -> bytes | None:
        content = super().load(hub, name)
        kind = kind_of(name)
        if content is not None and kind is not None:
            try:
                kind.decode(content)
            except DecodeError as exc:
                raise CommandFailed(
                    f"{self.file(hub, name)} is damaged: {exc}",
                    Exit.PROTOCOL,
                    "restore the file from a backup, or move it away and run `veen resync`",
                ) from None
        return content


def hub_folders(folder: Folder) -> Iterator[tuple[HubId, Path]]:
    """Yield each hub that the identity knows, and the folder of its records."""
    if folder.state.is_dir():
        for path in sorted(folder.state.iterdir()):
            if path.is_dir():
                yield HubId.from_hex(path.name), path


def label_records(folder: Folder, hub: HubId) -> Iterator[LabelRecord]:
    """Yield the records of all labels of a hub that the identity has read or written."""
    store = CheckedStateStore(folder.state)
    store.recover(hub)
    for path in sorted((folder.state / hub.hex()).glob(f"*{RECORD_SUFFIX}")):
        if kind_of(path.stem) is LabelRecord and (content := store.load(hub, path.stem)) is not None:
            yield LabelRecord.decode(content)
