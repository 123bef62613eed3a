"""The options with which a command reaches a hub: address, pinned hub, witnesses, identity, TLS, timeout.

No hub is trusted silently (core §8.4): ``--trust`` names it by hub_id or first hub_pk, or says ``first`` to
pin the hub that answers first and to refuse any other from then on. ``--witnesses`` names a policy file: the
hub's log must be cosigned as it says (RESOLUTIONS P2).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions
from veen_cli.arguments.numbers import Seconds
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.arguments.tls_files import load_tls
from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Output
from veen_cli.identity.hub_records import CheckedStateStore
from veen_cli.identity.identity_folder import Folder
from veen_cli.identity.known_streams import remember_stream
from veen_core.client_state import ClientBounds
from veen_core.keystore import Secrets
from veen_hub.client import Hub, Pin, PinOnFirstUse, Retry, Tls, connect

TOKEN_LIFE: Final = ClientBounds(max_client_id_lifetime_sec=2**40)
"""At a gated hub, a client_id is used as long as its token is valid: the issuer chose the ttl (core §6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The hub to connect to, and the identity to connect as."""

    url: str
    trust: str | None
    folder: Folder | None
    passphrase: Passphrase
    tls: Tls | None
    wait: float
    out: Output
    witnesses: Path | None = None
    """Witness policy file; None if the hub is trusted without witnesses."""
    successor: str | None = None
    """Address of the successor, which is used after a planned cutover (RESOLUTIONS P9)."""

    def secrets(self) -> Secrets:
        folder = self.folder or Folder(Path(settings.required_value("client", None)))
        return folder.unlock(self.passphrase)

    @property
    def pin(self) -> Pin:
        path = self.folder.pin(self.url) if self.folder is not None else None
        if self.trust == settings.FIRST:
            if path is None:
                raise click.UsageError(
                    "--trust first needs --client: the pin is kept in the identity's folder."
                )
            return PinOnFirstUse(path)
        if self.trust is not None:
            return self.trust
        if path is not None and path.exists():
            return PinOnFirstUse(path)
        raise CommandFailed(
            f"no hub is pinned for {self.url}",
            Exit.POLICY,
            "give --trust HUB_ID (the hub's operator prints it with `veen hub keys`), or --trust first to "
            "pin the hub that answers now",
        )

    def remember_stream(self, hub: Hub, name: str) -> None:
        """Note in the identity's folder that it has used this stream (`veen streams` lists it)."""
        if self.folder is not None:
            remember_stream(self.folder, hub.connection.hub_id, name)

    @asynccontextmanager
    async def connect(self, *, anonymous: bool = False) -> AsyncIterator[Hub]:
        """Connect and verify the hub; ``anonymous`` needs no keys and can only read evidence."""
        if self.folder is not None:
            self.folder.must_exist()
        secrets = None if anonymous else self.secrets()
        state = CheckedStateStore(self.folder.state) if self.folder is not None else None
        retry = Retry(max_attempts=1_000, deadline=self.wait)
        connecting = connect(
            self.url,
            secrets,
            trust=self.pin,
            successor=self.successor,
            witnesses=self.witnesses,
            state=state,
            tls=self.tls,
            retry=retry,
        )
        async with AsyncExitStack() as stack:
            with self.out.progress(f"waiting for {self.url}"):
                hub = await stack.enter_async_context(connecting)
            if hub.connection.status.gating:
                hub.connection.bounds = TOKEN_LIFE
            yield hub


witnesses_option = click.option(
    "--witnesses",
    metavar="FILE",
    envvar="VEEN_WITNESSES",
    show_envvar=True,
    shell_complete=completions.files,
    help="Witness policy file: a quorum of its witnesses must have cosigned the hub's log.",
)


def witness_policy_file(given: str | None) -> Path | None:
    """Return the witness policy file from the flag, its variable or the context."""
    named = settings.value_or_context("witnesses", given)
    return Path(named).expanduser() if named is not None else None


OPTIONS: Final = (
    click.option("--hub", envvar="VEEN_HUB", show_envvar=True, help="Address of the hub."),
    click.option(
        "--trust",
        envvar="VEEN_TRUST",
        show_envvar=True,
        help="The hub's hub_id or first hub_pk in hex, or 'first' to pin the hub that answers.",
    ),
    click.option(
        "--successor",
        envvar="VEEN_SUCCESSOR",
        show_envvar=True,
        metavar="URL",
        help="Address of the hub that replaces this one; used once this hub has signed a handover to it.",
    ),
    witnesses_option,
    click.option(
        "--client",
        envvar="VEEN_CLIENT",
        show_envvar=True,
        shell_complete=completions.folders,
        help="Folder of the identity to act as.",
    ),
    click.option(
        "--ca",
        type=click.Path(exists=True),
        help="PEM file of the authority that signed the hub's certificate (TLS).",
    ),
    click.option(
        "--cert", type=click.Path(exists=True), help="PEM file of the client certificate to present (TLS)."
    ),
    click.option("--cert-key", type=click.Path(exists=True), help="PEM file of that certificate's key."),
    click.option(
        "--wait",
        type=Seconds(),
        default=2.0,
        show_default=True,
        help="Seconds to keep trying to reach the hub.",
    ),
    passphrase_option,
)


def connects(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options above to a command, which gets a ``target``."""

    @wraps(work)
    def run(*args: Any, target: Target | None, **options: Any) -> Any:
        if target is None:
            settings.required_value("hub", None)  # raises a usage error that names the option
        return work(*args, target=target, **options)

    return may_connect(run)


def may_connect(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options above to a command that can do without a hub; ``target`` is None if none is named."""

    @wraps(work)
    def run(
        out: Output,
        *args: Any,
        hub: str | None,
        trust: str | None,
        successor: str | None,
        witnesses: str | None,
        client: str | None,
        ca: str | None,
        cert: str | None,
        cert_key: str | None,
        wait: float,
        passphrase_file: Path | None,
        **options: Any,
    ) -> Any:
        url = settings.value_or_context("hub", hub)
        if url is None:
            return work(out, *args, target=None, **options)
        client = settings.value_or_context("client", client)
        successor = settings.value_or_context("successor", successor)
        target = Target(
            url=settings.parse_hub_url(url),
            trust=settings.parse_trust(settings.value_or_context("trust", trust)),
            folder=Folder(Path(client).expanduser()) if client is not None else None,
            passphrase=Passphrase(passphrase_file),
            tls=load_tls(
                settings.value_or_context("ca", ca),
                settings.value_or_context("cert", cert),
                settings.value_or_context("cert_key", cert_key),
            ),
            wait=wait,
            out=out,
            witnesses=witness_policy_file(witnesses),
            successor=settings.parse_hub_url(successor, "--successor") if successor is not None else None,
        )
        return work(out, *args, target=target, **options)

    found: Callable[..., Any] = run
    for option in reversed(OPTIONS):
        found = option(found)
    return found


def stream_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--stream``, with the variable and the context as defaults."""

    @wraps(work)
    def run(*args: Any, stream: str | None, **options: Any) -> Any:
        return work(*args, stream=settings.required_value("stream", stream), **options)

    return click.option(
        "--stream", "-s", envvar="VEEN_STREAM", show_envvar=True, help="Name of the stream, or its id in hex."
    )(run)
