"""Choosing the hub to test: hubs that the selftest starts, or a running one by flag, variable or context."""

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

from veen_cli.frame import CommandFailed, Exit, Output
from veen_core.errors import VeenError
from veen_core.hashing import H
from veen_hub.client import Tls
from veen_selftest.command.admin_key import read_key
from veen_selftest.hubs.fleet import Fleet, KeyRefused, NoHub, OwnFleet, RemoteFleet
from veen_selftest.hubs.other_transport import is_other_transport
from veen_selftest.hubs.own_hub import PROGRAM
from veen_selftest.runner.check import ClauseViolation


def choose_hub(hub: str | None, out: Output, *, own: bool, hub_command: str | None) -> str | None:
    """Return the URL of the running hub to test, or None to start hubs.

    If the URL comes from the environment or a context, a note says so, because the run writes to that hub.
    """
    source = click.get_current_context().get_parameter_source("hub")
    given = source is ParameterSource.COMMANDLINE
    if own:
        if given:
            raise click.UsageError("--own starts hubs, and --hub names a running hub: give only one of them.")
        return None
    if hub is not None and not given:
        if hub_command is not None:
            return None
        origin = "VEEN_HUB" if source is ParameterSource.ENVIRONMENT else "the context in use"
        out.note(f"testing {hub}, from {origin}; --own starts hubs instead")
    return hub


def make_fleet(
    hub: str | None,
    *,
    seed: int,
    hub_command: str | None = None,
    admin_key: Path | None = None,
    passphrase_file: Path | None = None,
    tls: Tls | None = None,
    probes: str | None = None,
) -> Fleet:
    """Return hubs to start, or the hub at ``hub`` after checking that it answers and takes the key."""
    if hub is None:
        if admin_key is not None:
            raise click.UsageError("--admin-key belongs to a running hub: give --hub too.")
        program = PROGRAM if hub_command is None else split_program(hub_command)
        return OwnFleet(H(b"veen-selftest" + seed.to_bytes(8, "big")), program)
    if hub_command is not None:
        raise click.UsageError(
            "--hub-command starts a hub, and --hub names a running hub: give only one of them."
        )
    if not _is_url(hub):
        raise click.UsageError(f"--hub {hub} is not a URL such as http://127.0.0.1:8080.")
    if probes is not None and not _is_url(probes):
        raise click.UsageError(f"--probes {probes} is not a URL such as http://127.0.0.1:8081.")
    admin = read_key(admin_key, passphrase_file) if admin_key is not None else None
    fleet = RemoteFleet(hub, os.urandom(6).hex(), admin, tls, probes_url=probes)
    _check_remote(fleet, hub, admin_key)
    return fleet


def split_program(command: str) -> Sequence[str]:
    """Split the command that starts a hub; refuse it if there is no such program."""
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
        known = text.startswith(("http://", "https://")) or is_other_transport(text)
        return known and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a malformed port or address
        return False


def _check_remote(fleet: RemoteFleet, hub: str, admin_key: Path | None) -> None:
    """Check that a hub answers and takes the admin's key, before any check runs."""
    try:
        fleet.reach()
        fleet.check_admin()
    except NoHub as exc:
        raise CommandFailed(
            f"the server at {hub} is not a hub ({exc})",
            Exit.NETWORK,
            "check that --hub is the address of a hub",
        ) from None
    except KeyRefused as exc:
        raise CommandFailed(
            f"the hub refuses requests signed with {admin_key} ({exc})",
            Exit.REFUSED,
            "give the key of the admin that the hub was made with",
        ) from None
    except (OSError, EOFError, http.client.HTTPException) as exc:
        why = (exc.strerror if isinstance(exc, OSError) else None) or str(exc) or type(exc).__name__
        raise CommandFailed(
            f"no hub answers at {hub} ({why})",
            Exit.NETWORK,
            "check that it runs, and its address: http:// or https://, --ca, and --cert if it demands one",
        ) from None
    except (VeenError, ClauseViolation) as exc:
        raise CommandFailed(
            f"the server at {hub} does not speak this protocol: {exc}",
            Exit.SELFTEST,
            "check that --hub is the address of a hub",
        ) from None
