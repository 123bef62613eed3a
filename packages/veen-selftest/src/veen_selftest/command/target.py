"""Which hub is judged: one that the selftest starts, or one that is there (by flag, variable or context)."""

from __future__ import annotations

import http.client
import os
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click
from click.core import ParameterSource

from veen_core.errors import VeenError
from veen_core.hashing import H
from veen_hub.client import Tls
from veen_selftest.command.admin_key import read_key
from veen_selftest.hubs.fleet import Fleet, HubAt, KeyRefused, NoHub, OwnFleet
from veen_selftest.hubs.own_hub import PROGRAM
from veen_selftest.runner.check import Violation

NETWORK, REFUSED, FAILED = 2, 4, 5


class SelftestError(click.ClickException):
    """One line for a person, one code for a script."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]  # click reads it off the instance


def which_hub(hub: str | None, *, own: bool, hub_command: str | None, told: bool) -> str | None:
    """The one to judge; that it comes from the environment or a context is said, since it is written to."""
    source = click.get_current_context().get_parameter_source("hub")
    said = source is ParameterSource.COMMANDLINE
    if own:
        if said:
            raise click.UsageError("--own starts hubs, --hub is one that runs: give one of them.")
        return None
    if hub is not None and not said:
        if hub_command is not None:
            return None
        if told:
            whence = "VEEN_HUB" if source is ParameterSource.ENVIRONMENT else "the context in use"
            click.echo(f"judging {hub}, from {whence}; --own starts hubs instead", err=True)
    return hub


def make_fleet(
    hub: str | None,
    *,
    seed: int,
    hub_command: str | None = None,
    admin_key: Path | None = None,
    passphrase_file: Path | None = None,
    tls: Tls | None = None,
) -> Fleet:
    """Hubs of the run's own, or the one at ``hub``, reached and its admin's key tried."""
    if hub is None:
        if admin_key is not None:
            raise click.UsageError("--admin-key is of a hub that is there: give --hub too.")
        program = PROGRAM if hub_command is None else program_of(hub_command)
        return OwnFleet(H(b"veen-selftest" + seed.to_bytes(8, "big")), program)
    if hub_command is not None:
        raise click.UsageError("--hub-command starts a hub, --hub is one that runs: give one of them.")
    if not _is_url(hub):
        raise click.UsageError(f"--hub {hub}: want a URL, like http://127.0.0.1:8080.")
    admin = read_key(admin_key, passphrase_file) if admin_key is not None else None
    fleet = HubAt(hub, os.urandom(6).hex(), admin, tls)
    _try(fleet, hub, admin_key)
    return fleet


def program_of(command: str) -> Sequence[str]:
    """What to start as a hub; said before the run if there is no such program."""
    try:
        words = shlex.split(command)
    except ValueError as exc:
        raise click.UsageError(f"--hub-command {command}: {exc}.") from None
    if not words or shutil.which(words[0]) is None:
        raise click.UsageError(f"--hub-command {command}: there is no such program.")
    return words


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return text.startswith(("http://", "https://")) and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an address that is none
        return False


def tls_of(ca: Path | None, cert: Path | None, key: Path | None) -> Tls | None:
    """Whom to believe and what to show; files that will not do are said before the run."""
    if cert is None and key is not None:
        raise click.UsageError("--cert-key is the key of a certificate: give --cert too.")
    _usable(Tls(ca=ca), "'--ca'", f"{ca} holds no certificate: want PEM")
    wanted = "want both in PEM, that key with that certificate (--cert-key), without a passphrase"
    _usable(Tls(cert=cert, key=key), "'--cert'", f"{cert} cannot be shown: {wanted}")
    return Tls(ca=ca, cert=cert, key=key) if ca is not None or cert is not None else None


def _usable(tls: Tls, flag: str, otherwise: str) -> None:
    try:
        tls.context()
    except VeenError:
        raise click.BadParameter(otherwise, param_hint=flag) from None


def _try(fleet: HubAt, hub: str, admin_key: Path | None) -> None:
    """Nothing is judged unless a hub is there, and takes the key."""
    try:
        fleet.reach()
        fleet.check_admin()
    except NoHub as exc:
        raise SelftestError(
            f"no hub answers at {hub}, but something else ({exc}): check --hub", NETWORK
        ) from None
    except KeyRefused as exc:
        raise SelftestError(
            f"the hub refuses orders signed with {admin_key} ({exc}): give the key of the admin made with it",
            REFUSED,
        ) from None
    except (OSError, EOFError, http.client.HTTPException) as exc:
        raise SelftestError(
            f"no hub answers at {hub} ({str(exc) or type(exc).__name__}): check that it runs, and its "
            "address; http:// or https://, --ca, and --cert if it demands one",
            NETWORK,
        ) from None
    except (VeenError, Violation) as exc:
        raise SelftestError(f"what answers at {hub} is not a hub of this protocol: {exc}", FAILED) from None
