"""What an identity remembers of hubs, as files; a damaged one is named (RESYNC0.4)."""

from __future__ import annotations

from veen_cli.frame.exits import CommandFailed, Exit
from veen_core.errors import DecodeError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Label
from veen_core.wire import Wire
from veen_hub.client import FileStateStore
from veen_hub.client.state.records import HeldTokens, LabelRecord
from veen_hub.client.tokens import TOKENS_RECORD
from veen_hub.client.wire.connection import IDENTITY_RECORD


def kind_of(name: str) -> type[Wire] | None:
    """What a piece of state is, by its name; None for pieces that are not ours to judge."""
    if name in (IDENTITY_RECORD, TOKENS_RECORD):
        return HubIdentity if name == IDENTITY_RECORD else HeldTokens
    try:
        Label.from_hex(name)
    except DecodeError:
        return None
    return LabelRecord


class Remembered(FileStateStore):
    """The client's own store; what it reads is looked at first, so that an error can say which file."""

    def load(self, hub: HubId, name: str) -> bytes | None:
        content = super().load(hub, name)
        kind = kind_of(name)
        if content is not None and kind is not None:
            try:
                kind.decode(content)
            except DecodeError as exc:
                raise CommandFailed(
                    f"{self._path(hub, name, 'state')} is damaged: {exc}; restore it, or move it away and "
                    "run `veen resync`",
                    Exit.PROTOCOL,
                ) from None
        return content
