"""How a command reaches a hub: address, pin, identity, TLS, patience; from flags, variables or a context.

No hub is trusted silently (§8.4): ``--trust`` names it by hub_id or first hub_pk, or says ``first`` to
believe whoever answers first and nobody else after that.
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
from veen_cli.frame import settings
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Output
from veen_cli.identity.hub_records import Remembered
from veen_cli.identity.identity_folder import Folder
from veen_core.client_state import ClientBounds
from veen_core.errors import ConfigError
from veen_core.keystore import Secrets
from veen_hub.client import Hub, Pin, PinOnFirstUse, Retry, Tls, connect

TOKEN_LIFE: Final = ClientBounds(max_client_id_lifetime_sec=2**40)
"""A client_id that a token names serves for as long as the token does: the issuer chose its end (§6)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Which hub, and as whom."""

    url: str
    trust: str | None
    folder: Folder | None
    passphrase: Passphrase
    tls: Tls | None
    wait: float
    out: Output

    def secrets(self) -> Secrets:
        folder = self.folder or Folder(Path(settings.needed("client", None)))
        return folder.unlock(self.passphrase)

    @property
    def pin(self) -> Pin:
        path = self.folder.pin(self.url) if self.folder is not None else None
        if self.trust == settings.FIRST:
            if path is None:
                raise click.UsageError("--trust first needs --client: the pin is kept with the identity.")
            return PinOnFirstUse(path)
        if self.trust is not None:
            return self.trust
        if path is not None and path.exists():
            return PinOnFirstUse(path)
        raise CommandFailed(
            f"which hub is to answer at {self.url}? pin it: --trust HUB_ID (its operator reads it with "
            "`veen hub keys`), or --trust first to believe the first answer",
            Exit.POLICY,
        )

    @asynccontextmanager
    async def connect(self, *, anonymous: bool = False) -> AsyncIterator[Hub]:
        """A verified connection; ``anonymous`` for whoever only reads evidence."""
        if self.folder is not None:
            self.folder.must_exist()
        secrets = None if anonymous else self.secrets()
        state = Remembered(self.folder.state) if self.folder is not None else None
        retry = Retry(max_attempts=1_000, deadline=self.wait)
        connecting = connect(self.url, secrets, trust=self.pin, state=state, tls=self.tls, retry=retry)
        async with AsyncExitStack() as stack:
            with self.out.progress(f"waiting for {self.url}"):
                hub = await stack.enter_async_context(connecting)
            if hub.connection.status.gating:
                hub.connection.bounds = TOKEN_LIFE
            yield hub


OPTIONS: Final = (
    click.option("--hub", envvar="VEEN_HUB", show_envvar=True, help="Address of the hub."),
    click.option(
        "--trust",
        envvar="VEEN_TRUST",
        show_envvar=True,
        help="The hub's hub_id or first hub_pk in hex; or 'first'.",
    ),
    click.option(
        "--client",
        envvar="VEEN_CLIENT",
        show_envvar=True,
        shell_complete=completions.folders,
        help="Folder of the identity to act as.",
    ),
    click.option("--ca", type=click.Path(exists=True), help="PEM file: believe this authority (TLS)."),
    click.option("--cert", type=click.Path(exists=True), help="PEM file: show this certificate (TLS)."),
    click.option("--cert-key", type=click.Path(exists=True), help="PEM file: the certificate's key."),
    click.option(
        "--wait", type=Seconds(), default=2.0, show_default=True, help="Seconds to try to reach the hub."
    ),
    passphrase_option,
)


def tls_of(ca: str | None, cert: str | None, cert_key: str | None) -> Tls | None:
    """Whom to believe and what to show (COMP0.3); files that will not do are said before anybody is asked."""
    tls = Tls(
        ca=settings.filled("ca", ca),
        cert=settings.filled("cert", cert),
        key=settings.filled("cert_key", cert_key),
    )
    if tls.key and not tls.cert:
        raise click.UsageError("--cert-key is the key of a certificate: give --cert too.")
    wanted = "want PEM, for --cert with the --cert-key that is its own, without a passphrase."
    for flag, part in (("--ca", Tls(ca=tls.ca)), ("--cert", Tls(cert=tls.cert, key=tls.key))):
        try:
            part.context()
        except ConfigError:
            raise click.UsageError(f"{flag} {part.ca or part.cert} cannot be used: {wanted}") from None
    return tls if tls.ca or tls.cert else None


def connects(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options above; the command gets a ``target``."""

    @wraps(work)
    def run(
        out: Output,
        *args: Any,
        hub: str | None,
        trust: str | None,
        client: str | None,
        ca: str | None,
        cert: str | None,
        cert_key: str | None,
        wait: float,
        passphrase_file: Path | None,
        **options: Any,
    ) -> Any:
        client = settings.filled("client", client)
        target = Target(
            url=settings.address_of(settings.needed("hub", hub)),
            trust=settings.trust_of(settings.filled("trust", trust)),
            folder=Folder(Path(client).expanduser()) if client is not None else None,
            passphrase=Passphrase(passphrase_file),
            tls=tls_of(ca, cert, cert_key),
            wait=wait,
            out=out,
        )
        return work(out, *args, target=target, **options)

    found: Callable[..., Any] = run
    for option in reversed(OPTIONS):
        found = option(found)
    return found


def stream_option(work: Callable[..., Any]) -> Callable[..., Any]:
    """``--stream``, from flag, variable or context."""

    @wraps(work)
    def run(*args: Any, stream: str | None, **options: Any) -> Any:
        return work(*args, stream=settings.needed("stream", stream), **options)

    return click.option(
        "--stream", "-s", envvar="VEEN_STREAM", show_envvar=True, help="Name of the stream, or its id in hex."
    )(run)
