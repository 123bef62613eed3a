"""The hub's record of each sender: the newest replies, and the request that the hub has begun.

A kept reply is the end of its request. A request that comes again, after a crash or because the
link has lost the reply, gets the same one.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core import cbor
from veen_core.errors import DecodeError
from veen_core.ids import Label, StreamSeq
from veen_hub.file_drop.envelopes import MAX_REPLY_BYTES, REPLY, DropName
from veen_hub.file_drop.files import names_in, read_file, sync_folder, write_file

MAX_KEPT_REPLIES: Final = 256
"""Newest replies per sender that a repeated request can get."""
BEGUN: Final = "begun"
MAX_BEGUN_BYTES: Final = 1_024


@dataclass(frozen=True, slots=True)
class Begun:
    """A submit that had begun: the label of its message, and the label's head before the submit."""

    label: Label
    head: StreamSeq


class AnsweredRequests:
    """The requests of one sender, in a folder of the data directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        kept = (DropName.parse(name, REPLY) for name in names_in(folder)) if folder.is_dir() else ()
        self._kept = sorted(name for name in kept if name is not None)
        self.done = self._kept[-1].number if self._kept else 0
        """Number of the last request that was answered."""

    def reply_to(self, name: DropName) -> bytes | None:
        """Return the reply that a request got before, if it is kept."""
        with contextlib.suppress(FileNotFoundError):
            return read_file(self._folder / name.file_name(REPLY), MAX_REPLY_BYTES)
        return None

    def begun(self, name: DropName) -> Begun | None:
        """Return the note of an earlier beginning of this request; None if it has not begun before."""
        try:
            data = read_file(self._folder / BEGUN, MAX_BEGUN_BYTES)
        except FileNotFoundError:
            return None
        match cbor.decode(data or b""):
            case [str(named), bytes(label), int(head)]:
                return Begun(Label(label), StreamSeq(head)) if named == name.digest else None
        raise DecodeError(f"{self._folder / BEGUN} is damaged")

    def begin(self, name: DropName, begun: Begun) -> None:
        """Note that a submit begins; durable when this returns."""
        self._make()
        write_file(self._folder, BEGUN, cbor.encode([name.digest, bytes(begun.label), int(begun.head)]))

    def end(self, name: DropName, reply: bytes) -> None:
        """Keep the reply of the next request; durable when this returns."""
        self._make()
        write_file(self._folder, name.file_name(REPLY), reply)  # the commit point of the request
        self._kept.append(name)
        self.done = name.number
        while len(self._kept) > MAX_KEPT_REPLIES:
            (self._folder / self._kept.pop(0).file_name(REPLY)).unlink(missing_ok=True)

    def _make(self) -> None:
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, mode=0o700)
            sync_folder(self._folder.parent)
