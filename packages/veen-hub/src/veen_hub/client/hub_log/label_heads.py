"""The list of all labels of a hub, complete under one hub checkpoint (RESOLUTIONS P1)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from veen_core import hub_log
from veen_core.errors import DecodeError, StateError
from veen_core.hub_log import HeadTable, LabelHead
from veen_core.tlog.policy import Cosigned
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.errors import Misbehaved, NotFound
from veen_hub.client.hub_log.confirmations import Confirmations
from veen_hub.client.hub_log.tile_reader import Fetch, TileReader
from veen_hub.client.wire.connection import HubConnection


class NoHubCheckpointError(StateError):
    """The hub has signed no hub checkpoint: it has no entry, or its first is not a second old (P1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelHeads:
    """The newest head of every label under a hub checkpoint, and its cosigners (None without a policy)."""

    checkpoint: SignedHead
    cosigned: Cosigned | None
    table: HeadTable


async def read_label_heads(
    connection: HubConnection,
    confirmations: Confirmations | None,
    progress: Callable[[int], None] | None = None,
) -> LabelHeads:
    """Read the whole hub log of a hub under its newest checkpoint; with a policy, under the accepted one.

    ``progress`` is called with the number of entries read so far.
    """
    api, accepted = connection.api, None
    if confirmations is not None:
        await confirmations.checkpoints.refresh()
        confirmations.checkpoints.check_age()
        accepted = confirmations.checkpoints.newest
        signed = accepted.signed if accepted is not None else None
    else:
        signed = await connection.ask(api.hub_checkpoint)
    if signed is None:
        raise NoHubCheckpointError(
            "the hub has published no hub checkpoint yet",
            action="send a message, or wait a second and try again",
        )
    table = await head_table(signed, lambda path: connection.ask(lambda: api.log_file(path)), progress)
    identity, origin = connection.status.identity, signed.head.origin
    hub_log.verify_hub_checkpoint(identity, signed, origin=origin, since=table.hub_ts)
    return LabelHeads(
        checkpoint=signed, cosigned=accepted.cosigned if accepted is not None else None, table=table
    )


async def head_table(
    signed: SignedHead, fetch: Fetch, progress: Callable[[int], None] | None = None
) -> HeadTable:
    """Read the whole hub log under a hub checkpoint and return the newest head of every label.

    Memory is bounded by the number of labels, not of entries. The signatures are not verified.
    """
    table, reader = HeadTable(), TileReader(fetch, signed.head)
    try:
        async with aclosing(reader.entries()) as entries:
            async for index, entry in entries:
                table.add(_decode(index, entry))
                if progress is not None:
                    progress(index + 1)
    except NotFound as exc:
        raise Misbehaved(
            f"the hub does not serve all of its log under the hub checkpoint at size {signed.head.size}: "
            f"{exc.hub_message}"
        ) from exc
    return table


def _decode(index: int, entry: bytes) -> LabelHead:
    try:
        return LabelHead.decode(entry)
    except DecodeError as exc:
        raise Misbehaved(f"entry {index} of the hub log is not a label's head: {exc}") from None
