"""The options with which a command reads events itself: keys, import streams, hubs of other zones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veen_cli.commands.stream import reader_keys
from veen_cli.frame.connection import Target, may_connect
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.query.extra import require_extra

if TYPE_CHECKING:
    from veen_overlays.live.query_service.view_backend import ViewBackend


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAccess:
    """How events are read: the hub, and what the options below say."""

    target: Target | None
    readers: tuple[Path, ...]
    held_in: tuple[str, ...]
    origins: tuple[Path, ...]
    resealed: bool
    rebuild: bool = False

    @asynccontextmanager
    async def view(self, scope: Sequence[str]) -> AsyncIterator[ViewBackend]:
        """Connect, and bring the identity's own view of these streams up to date."""
        require_extra()
        # Imported here: they load DuckDB and Arrow.
        from veen_cli.query import event_sources as events  # noqa: PLC0415

        target = self.target
        if target is None or target.folder is None:
            raise CommandFailed(
                "reading events needs a hub and an identity", Exit.USAGE, "give --hub, --trust and --client"
            )
        mapped = dict(_pair(each) for each in self.held_in)
        readers = reader_keys(self.readers, target)
        async with target.connect() as hub:
            assert hub.connection.identity is not None
            keys = (*readers, *hub.connection.identity.dh_keys)
            sources = events.EventSources(
                streams=tuple(events.QueriedStream(name=name, held_in=mapped.get(name)) for name in scope),
                keys=keys,
                origins=tuple(
                    events.BridgedHub(identity=events.read_identity(each)) for each in self.origins
                ),
                resealed=self.resealed,
            )
            name = f"query-{events.view_name(hub.hub_id, sources, mapped)}"
            folder = target.folder.root / "views" / name
            async with events.open_view(hub, sources, folder, rebuild=self.rebuild) as backend:
                with target.out.progress("reading events"):
                    await backend.refresh()
                yield backend


def _pair(text: str) -> tuple[str, str]:
    name, sign, held = text.partition("=")
    if not sign or not name or not held:
        raise click.UsageError(f"--held-in {text!r}: write NAME=IMPORT_STREAM.")
    return name, held


rebuild_option = click.option(
    "--rebuild", is_flag=True, help="Discard the view and read the logs again; pruned entries are gone."
)


def reads_events(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets an ``access``."""

    @wraps(work)
    def run(
        *args: Any,
        target: Target | None,
        readers: tuple[Path, ...],
        held_in: tuple[str, ...],
        origins: tuple[Path, ...],
        resealed: bool,
        rebuild: bool,
        **options: Any,
    ) -> Any:
        access = EventAccess(
            target=target,
            readers=readers,
            held_in=held_in,
            origins=origins,
            resealed=resealed,
            rebuild=rebuild,
        )
        return work(*args, access=access, **options)

    found: Callable[..., Any] = may_connect(run)
    for option in (
        rebuild_option,
        click.option("--resealed", is_flag=True, help="Imported events were resealed (bridge mode reseal)."),
        click.option(
            "--origin",
            "origins",
            multiple=True,
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            help="Identity of another zone's hub (`veen hub keys --out`): its events count; repeatable.",
        ),
        click.option(
            "--held-in",
            multiple=True,
            metavar="NAME=STREAM",
            help="The import stream that holds the events of stream NAME; repeatable.",
        ),
        click.option(
            "--reader",
            "readers",
            multiple=True,
            type=click.Path(path_type=Path, exists=True),
            help="Folder of a shared reader key that opens the streams; repeatable.",
        ),
    ):
        found = option(found)
    return found
