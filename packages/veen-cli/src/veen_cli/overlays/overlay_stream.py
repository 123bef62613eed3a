"""The connection of overlay commands to a stream: send records to it, fold it into a view (core §11).

Views are kept in the identity's folder under ``views/``, one store per hub and set of reader keys: other
keys open other messages and so fold another view. A view may be deleted at any time; it is folded again when
needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from veen_cli.arguments import completions
from veen_cli.commands.send import receipt_dict
from veen_cli.commands.stream import reader_keys
from veen_cli.frame import loop, settings
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Progress
from veen_cli.identity.identity_folder import Folder, recipient_named
from veen_core.cap import CapToken
from veen_core.hashing import H
from veen_core.ids import ClientId, Epoch, LeafHash, StreamId, UnixTime
from veen_core.keys import DhKey
from veen_core.msg import Msg
from veen_core.receipt import Receipt
from veen_core.stream import stream_id
from veen_hub.client import Hub, Identity, NotFound, Stream
from veen_overlays.fold.event import Message
from veen_overlays.fold.overlay import Overlay
from veen_overlays.live import EpochView, Materializer, ReadPrefix, open_entry
from veen_overlays.schema.record import Record
from veen_storage import ViewStore

S = TypeVar("S")
View = Materializer[S] | EpochView[S]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlayStream:
    """One stream of a connected hub, with the keys that open it."""

    hub: Hub
    stream: Stream
    keys: tuple[DhKey, ...]
    access: OverlayAccess
    description: str
    """The description in errors: the stream, the realm or the wallet that the user named."""

    async def send(self, record: Record, *, parent: LeafHash | None = None, to: str | None = None) -> Receipt:
        """Send a record; it is durable when this returns. ``to`` overrides the recipient of ``--to``."""
        to, cap = to or self.access.to, self.access.cap
        return await self.stream.send(
            record,
            to=recipient_named(to) if to is not None else None,
            cap=CapToken.decode(cap.read_bytes()) if cap is not None else None,
            parent=parent,
        )

    @property
    def now(self) -> UnixTime:
        """The hub's time, the clock of its receipts."""
        return self.hub.connection.time.now()

    @asynccontextmanager
    async def view(
        self, overlay: Overlay[S], epoch: int | None = None, *, must_exist: bool = False
    ) -> AsyncIterator[View[S]]:
        """The overlay's view of the stream, folded to its end: over all epochs, or of one epoch.

        ``must_exist`` is for commands that only read: a stream without messages is most likely a typo.
        """
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
            if must_exist and not view.size:
                raise self.missing(epoch if self.hub.connection.profile.epoch_sec else None)
            yield view

    def _watched(
        self, what: str, counted: Callable[[], int] | None = None
    ) -> AbstractContextManager[Progress]:
        return self.access.target.out.progress(what, counted=counted)

    def missing(self, epoch: int | None = None) -> CommandFailed:
        """The error for a command that reads a stream, or one epoch of it, without messages."""
        url = self.access.target.url
        if epoch is not None:
            return CommandFailed(
                f"{self.description} has no message in epoch {epoch} at the hub at {url}",
                Exit.USAGE,
                action="choose another --epoch, or leave it out to fold all epochs",
            )
        return CommandFailed(
            f"no such {self.description}: the hub at {url} has no messages for it",
            Exit.USAGE,
            action="check the spelling and --hub",
        )

    async def state(self, overlay: Overlay[S], *, must_exist: bool = False) -> S:
        """The folded state at the end of the stream."""
        async with self.view(overlay, must_exist=must_exist) as view:
            return (await view.state()).summary.inner

    async def signed(self, overlay: Overlay[Any]) -> AsyncGenerator[tuple[Message, Msg], None]:
        """All messages of the stream from its start, opened, each with its MSG.

        At a hub with epochs, the view of ``overlay`` knows the order of the labels.
        """
        if self.hub.connection.profile.epoch_sec:
            async with self.view(overlay) as view:
                assert isinstance(view, EpochView)
                async for position, entry in view.entries():
                    yield open_entry(entry, entry.receipt, self.keys)._replace(seq=position), entry.msg
            return
        with self._watched("reading messages") as progress:
            async for entry in ReadPrefix(self.stream.label()).entries(self.hub.log_reader()):
                yield open_entry(entry, entry.receipt, self.keys), entry.msg
                progress.advance()

    async def authors(self) -> tuple[bytes, ...]:
        """The keys behind a message that is sent now: possible signers, and the token's issuer (WAL §8)."""
        token = await self._token()
        signers = (self.access.identity.client_id, await self.stream.client_id())
        return signers if token is None else (*signers, token.issuer_pk)

    async def signer(self) -> ClientId:
        """The key that signs a message that is sent now: the token's subject, or the stream's client_id."""
        token = await self._token()
        return await self.stream.client_id() if token is None else ClientId(token.subject_pk)

    async def _token(self) -> CapToken | None:
        """The token of a message that is sent now."""
        hub, cap = self.hub, self.access.cap
        log = await hub.log(self.stream.label(), hub.connection.origin(self.stream.id))
        named = CapToken.decode(cap.read_bytes()) if cap is not None else None
        return await hub.tokens.choose(log, self.stream.id, named)

    async def authors_of(self, msg: Msg) -> tuple[bytes, ...]:
        """The keys behind a message: its signer, and its token's issuer as the hub recorded it (H18)."""
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
class OverlayAccess:
    """The options of an overlay command: hub, identity, reader keys, recipient and token."""

    target: Target
    reader: tuple[Path, ...]
    to: str | None
    cap: Path | None

    @property
    def folder(self) -> Folder:
        return self.target.folder or Folder(Path(settings.required_value("client", None)))

    @property
    def identity(self) -> Identity:
        """The identity that the command acts as."""
        return Identity.of(self.target.secrets())

    @asynccontextmanager
    async def streams(
        self, described: str | None = None, *, reader_of: Callable[[StreamId], DhKey] | None = None
    ) -> AsyncIterator[Callable[[str | StreamId], OverlayStream]]:
        """Connect, and open any number of streams by name or id; ``described`` names them in errors.

        ``reader_of`` gives a stream's reader key if ``--reader`` names none.
        """
        readers = reader_keys(self.reader, self.target)

        async with self.target.connect() as hub:
            identity = hub.connection.identity
            assert identity is not None

            def at_stream(name: str | StreamId) -> OverlayStream:
                text = name if isinstance(name, str) else name.hex()
                shared = readers or (() if reader_of is None else (reader_of(stream_id(text)),))
                return OverlayStream(
                    hub=hub,
                    stream=hub.stream(text, readers=shared),
                    keys=(*shared, *identity.dh_keys),
                    access=self,
                    description=described or f"stream {text}",
                )

            yield at_stream

    def send(self, name: str | StreamId, record: Record) -> Receipt:
        """Connect, send one record and return its receipt."""

        async def work() -> Receipt:
            async with self.at(name) as source:
                return await source.send(record)

        return loop.run(work())

    def state(self, name: str | StreamId, overlay: Overlay[S], described: str | None = None) -> S:
        """Connect and fold a stream that must exist; ``described`` names it in errors."""

        async def work() -> S:
            async with self.streams(described) as at_stream:
                return await at_stream(name).state(overlay, must_exist=True)

        return loop.run(work())

    @asynccontextmanager
    async def at(self, name: str | StreamId, described: str | None = None) -> AsyncIterator[OverlayStream]:
        """Connect and open one stream; ``described`` names it in errors."""
        async with self.streams(described) as at_stream:
            yield at_stream(name)


def access_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of ``connects``, ``--reader``, ``--to``, ``--cap``; the command gets an ``access``."""

    @wraps(work)
    def run(
        *args: Any, target: Target, reader: tuple[Path, ...], to: str | None, cap: Path | None, **options: Any
    ) -> Any:
        return work(*args, access=OverlayAccess(target=target, reader=reader, to=to, cap=cap), **options)

    found: Callable[..., Any] = connects(run)
    for option in (
        click.option(
            "--cap",
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Token file [default: the token that was authorized for the stream].",
        ),
        click.option(
            "--to",
            shell_complete=completions.files,
            help="Seal to this identity (folder or card) or X25519 key [default: the reader, or you].",
        ),
        click.option(
            "--reader",
            multiple=True,
            type=click.Path(path_type=Path, exists=True),
            help="Folder of a shared reader key: records are sealed to it and read with it.",
        ),
    ):
        found = option(found)
    return found


REFUSAL_ACTIONS: Final[dict[str, str]] = {
    "CRDT0.2": "list the elements with `veen crdt set show`",
    "QUEUE.NO_JOB": "list the open jobs with `veen fold queue.jobs STREAM`",
    "WAL.NOT_OPEN": "open the wallet with `veen wallet open`, or check its id and --ledger",
    "WAL.CLOSED": "use another wallet: a closed one cannot be opened again",
    "WAL.FROZEN": "have an operator run `veen wallet unfreeze`",
    "WAL.SELF_TRANSFER": "choose another destination",
    "WAL.DAILY_LIMIT_EXCEEDED": "wait for the next UTC day, or have the limit raised (`veen wallet limit`)",
    "WAL.INSUFFICIENT_FUNDS": "choose a smaller amount, or deposit first",
    "WAL.NOT_EMPTY": "withdraw or transfer the balance first",
    "WAL.DUPLICATE_REF": "choose another --ref if this is a new payment",
    "WAL.INVALID_CURRENCY": "choose another --currency",
    "WAL.UNAUTHORIZED_OPERATION": "act as one of the operators in the --policy file",
    "AGREEMENT.M2": "choose a --version that is higher than every version before",
    "AGREEMENT.PARTY": "act as one of the parties (`veen agree status`)",
    "AGREEMENT.TERMS": "ask the party that proposed the version for the text",
    "PUBLICATION.P1": "choose another version: published content does not change",
    "RECOVERY.R3": "act as one of the executors (`veen recover status`)",
    "RECOVERY.8.3": "see what is missing with `veen recover status`",
}
"""The next step after a refusal, by its code."""


def refused(code: str, why: str) -> CommandFailed:
    """The error for a record that a rule forbids; nothing was sent."""
    action = REFUSAL_ACTIONS.get(str(code))
    return CommandFailed(f"{code}: {why}; nothing was sent", Exit.POLICY, action, reason=str(code))


def text_or_hex(content: bytes) -> str:
    """Bytes for a person: as text if they are printable UTF-8, else in hex."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return content.hex()
    return text if text.isprintable() else content.hex()


def bytes_data(name: str, content: bytes) -> dict[str, str]:
    """Bytes for a program: under ``name`` if they are UTF-8, else in hex under ``name_hex``."""
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_hex": content.hex()}


def sent_data(record: Record, receipt: Receipt, stream: str) -> dict[str, Any]:
    """The JSON of a sent record: its schema, its stream and its receipt."""
    return {"schema": record.NAME, "stream": stream, **receipt_dict(receipt)}
