"""Acting as a party of an operation: its records count only if the party has signed them (spec-3; P10).

At a hub with tokens the identity's own key signs. At an open hub the client has a key per stream. There a
command first sends the record that links this key to the identity, once per stream and key.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import click
from click.shell_completion import CompletionItem

from veen_cli.arguments import completions
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.identity.identity_folder import verify_key_named
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, View
from veen_core.errors import DecodeError
from veen_core.ids import ClientId, FixedBytes
from veen_core.receipt import Receipt
from veen_overlays.fold.overlay import Overlay
from veen_overlays.operations.key_links import signs_for
from veen_overlays.operations.operation import IdentityId
from veen_overlays.recorder.records import sign_continuity
from veen_overlays.schema.record import Record

F = TypeVar("F", bound=FixedBytes)


class Party(click.ParamType[IdentityId]):
    """An identity: its folder, its card, or its key in hex."""

    name = "identity"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> IdentityId:
        del param, ctx
        return value if isinstance(value, IdentityId) else IdentityId(verify_key_named(str(value)))

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return completions.files(ctx, param, incomplete)


class NameOrId(click.ParamType[F], Generic[F]):
    """An id in hex, or a name that it is derived from."""

    def __init__(self, kind: type[F], derive: Callable[[str], F]) -> None:
        self._kind, self._derive = kind, derive
        self.name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> F:
        del param, ctx
        if isinstance(value, self._kind):
            return value
        try:
            return self._kind.from_hex(str(value).lower())
        except DecodeError:
            return self._derive(str(value))


@dataclass(frozen=True, slots=True)
class PartyView:
    """A folded stream on which the acting identity sends records as a party."""

    source: OverlayStream
    view: View[Mapping[str, Any]]

    @property
    def identity(self) -> IdentityId:
        """The acting identity."""
        return IdentityId(self.source.access.identity.client_id)

    async def state(self) -> Mapping[str, Any]:
        """The state at the end of the stream, as far as it was read."""
        return (await self.view.state()).summary.inner

    async def link(self) -> ClientId:
        """Link the key that signs the next message to the identity, if it is another key; return the key."""
        signer = await self.source.signer()
        links = (await self.state()).get("links", {})
        if not signs_for(links, self.identity, signer, self.view.size + 1):
            await self.source.send(sign_continuity(self.source.access.identity.signing_key, signer))
            await self.view.catch_up()
        return signer

    async def send(self, record: Record) -> Receipt:
        """Send a record as the acting identity, and fold the stream up to it."""
        await self.link()
        receipt = await self.source.send(record)
        await self.view.catch_up()
        return receipt


@asynccontextmanager
async def party_view(
    access: OverlayAccess,
    stream: str,
    overlay: Overlay[Mapping[str, Any]],
    *,
    must_exist: bool = False,
    described: str | None = None,
) -> AsyncIterator[PartyView]:
    """Connect, and fold a stream to its end; ``described`` names the stream in errors."""
    async with access.at(stream, described) as source, source.view(overlay, must_exist=must_exist) as view:
        yield PartyView(source, view)


async def position_at(view: View[Any], time: int) -> int:
    """The last position whose receipt is not later than a Unix time; 0 if there is none (H3)."""
    low, high = 0, view.size
    while low < high:
        middle = (low + high + 1) // 2
        receipt = (await view.state(middle)).receipt
        assert receipt is not None
        low, high = (middle, high) if receipt.hub_ts <= time else (low, middle - 1)
    return low


def unknown(what: str, stream: str, command: str) -> CommandFailed:
    """The error for an object that a stream does not name."""
    return CommandFailed(f"stream {stream} has no {what}", Exit.USAGE, f"list them with `{command}`")
