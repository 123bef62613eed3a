"""A stream as an overlay uses it: records go in, sealed to its readers; a folded view comes out (§11).

Views lie with the identity, in ``views/``, one store for each hub and each set of keys: what a key does
not open is nothing to its view, so views of other keys are other views. They may be removed at any time.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import click

from veen_cli.arguments import completions
from veen_cli.commands.send import receipt_told
from veen_cli.commands.stream import readers_of
from veen_cli.frame import loop, settings
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Progress
from veen_cli.identity.identity_folder import Folder, recipient_named
from veen_core.cap import CapToken
from veen_core.hashing import H
from veen_core.ids import Epoch, LeafHash, StreamId, UnixTime
from veen_core.keys import DhKey
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_hub.client import Hub, Identity, NotFound, Stream
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live import EpochView, Materializer, Prefix, open_entry
from veen_overlays.schema.record import Record
from veen_storage import ViewStore

S = TypeVar("S")
View = Materializer[S] | EpochView[S]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayStream:
    """One stream of a connected hub."""

    hub: Hub
    stream: Stream
    keys: tuple[DhKey, ...]
    access: Access

    async def send(self, record: Record, *, parent: LeafHash | None = None, to: str | None = None) -> Receipt:
        """Durable when it returns. ``to``: sealed to somebody else than what else is sent."""
        to, cap = to or self.access.to, self.access.cap
        return await self.stream.send(
            record,
            to=recipient_named(to) if to is not None else None,
            cap=CapToken.decode(cap.read_bytes()) if cap is not None else None,
            parent=parent,
        )

    @property
    def now(self) -> UnixTime:
        """By the hub's clock, which is the one that its receipts show."""
        return self.hub.connection.time.now()

    @asynccontextmanager
    async def view(self, overlay: Overlay[S], epoch: int | None = None) -> AsyncIterator[View[S]]:
        """The overlay's view of the stream, folded up to its end: through all its epochs, or of one."""
        epochs = self.hub.epoch_labels(self.stream.id) if epoch is None else None
        with ViewStore(self._views) as store:
            reader, label = self.hub.log_reader(), self.stream.label(Epoch(epoch or 0))
            view: View[S] = (
                Materializer(overlay, label, reader, key=self.keys, store=store)
                if epochs is None
                else EpochView(overlay, epochs, reader, key=self.keys, store=store)
            )
            await view.open()
            with self._watched("folding messages", lambda: view.size):
                await view.catch_up()
            yield view

    def _watched(
        self, what: str, counted: Callable[[], int] | None = None
    ) -> AbstractContextManager[Progress]:
        return self.access.target.out.progress(what, counted=counted)

    async def state(self, overlay: Overlay[S]) -> S:
        """As it is now."""
        async with self.view(overlay) as view:
            return (await view.state()).summary.inner

    async def signed(self, overlay: Overlay[Any]) -> AsyncGenerator[tuple[Message, Msg], None]:
        """All of the stream's messages, opened, in its order, each with the MSG it came in.

        ``overlay`` is the one whose view knows where the labels of past epochs lie, if there are any.
        """
        if self.hub.connection.profile.epoch_sec:
            async with self.view(overlay) as view:
                assert isinstance(view, EpochView)
                async for position, entry in view.entries():
                    yield open_entry(entry, entry.receipt, self.keys)._replace(seq=position), entry.msg
            return
        with self._watched("reading messages") as progress:
            async for entry in Prefix(self.stream.label()).entries(self.hub.log_reader()):
                yield open_entry(entry, entry.receipt, self.keys), entry.msg
                progress.advance()

    async def authors(self) -> tuple[bytes, ...]:
        """The keys behind a message sent now: those that may sign it, and who issued its token (WAL §8)."""
        hub, cap = self.hub, self.access.cap
        log = await hub.log(self.stream.label(), hub.connection.origin(self.stream.id))
        named = CapToken.decode(cap.read_bytes()) if cap is not None else None
        token = await hub.tokens.choose(log, self.stream.id, named)
        signers = (self.access.identity.client_id, await self.stream.client_id())
        return signers if token is None else (*signers, token.issuer_pk)

    async def authors_of(self, msg: Msg) -> tuple[bytes, ...]:
        """Who signed it, and who issued the token that it was admitted with, as the hub holds it (H18)."""
        if msg.auth_ref is None:
            return (msg.client_id,)
        try:
            issuer = (await self.hub.cap_status(msg.auth_ref)).issuer_pk
        except NotFound:
            issuer = None
        return (msg.client_id,) if issuer is None else (msg.client_id, issuer)

    @property
    def _views(self) -> Path:
        readers = H(b"".join(key.public for key in self.keys)).hex()[:16]
        return self.access.folder.root / "views" / f"{self.hub.hub_id.hex()[:16]}-{readers}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Which hub, as whom, with whose reader keys; what a command gets before it connects."""

    target: Target
    reader: tuple[Path, ...]
    to: str | None
    cap: Path | None

    @property
    def folder(self) -> Folder:
        return self.target.folder or Folder(Path(settings.required_value("client", None)))

    @property
    def identity(self) -> Identity:
        """Whose keys the command acts with."""
        return Identity.of(self.target.secrets())

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[Callable[[str | StreamId], OverlayStream]]:
        """Connect; any number of streams, by name or by id."""
        readers = readers_of(self.reader, self.target)

        async with self.target.connect() as hub:
            identity = hub.connection.identity
            assert identity is not None

            def at_stream(name: str | StreamId) -> OverlayStream:
                text = name if isinstance(name, str) else name.hex()
                keys = (*readers, *identity.dh_keys)
                return OverlayStream(
                    hub=hub, stream=hub.stream(text, readers=readers), keys=keys, access=self
                )

            yield at_stream

    def send(self, name: str | StreamId, record: Record) -> Receipt:
        """Connect, send one record, and have its receipt."""

        async def work() -> Receipt:
            async with self.at(name) as source:
                return await source.send(record)

        return loop.run(work())

    def state(self, name: str | StreamId, overlay: Overlay[S]) -> S:
        """Connect, and fold one stream."""

        async def work() -> S:
            async with self.at(name) as at_stream:
                return await at_stream.state(overlay)

        return loop.run(work())

    @asynccontextmanager
    async def at(self, name: str | StreamId) -> AsyncIterator[OverlayStream]:
        """Connect, for one stream."""
        async with self.streams() as at_stream:
            yield at_stream(name)


def access_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """The options of ``connects`` and those of sealing and reading; the command gets a ``access``."""

    @wraps(work)
    def run(
        *args: Any, target: Target, reader: tuple[Path, ...], to: str | None, cap: Path | None, **options: Any
    ) -> Any:
        return work(*args, access=Access(target=target, reader=reader, to=to, cap=cap), **options)

    found: Callable[..., Any] = connects(run)
    for option in (
        click.option(
            "--cap",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Token file; one that was authorized before is found by itself.",
        ),
        click.option(
            "--to",
            shell_complete=completions.files,
            help="Seal to: a folder, card, or X25519 key [default: the reader, or you].",
        ),
        click.option(
            "--reader",
            multiple=True,
            type=click.Path(path_type=Path, exists=True),
            help="Folder of a shared stream's reader key, to seal to and to read with.",
        ),
    ):
        found = option(found)
    return found


def refused(code: str, why: str) -> CommandFailed:
    """A rule on this side forbids it: nothing was sent."""
    return CommandFailed(f"{code}: {why}; nothing was sent", Exit.POLICY)


def text_or_hex(content: bytes) -> str:
    """For a person: text where it is printable text."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content.hex()
    return text if text.isprintable() else content.hex()


def bytes_data(name: str, content: bytes) -> dict[str, str]:
    """For a program: ``name`` if it is text, else ``name_hex``."""
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": content.hex()}


def sent_data(record: Record, receipt: Receipt, stream: str) -> dict[str, Any]:
    return {"schema": record.NAME, "stream": stream, **receipt_told(receipt)}
