"""``veen hub init``: a new hub, empty, with a key pair that fixes its hub_id for ever (B13)."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.hub.data_directory import keys_dir_option, new_data_dir_option
from veen_cli.identity.identity_folder import verify_key_named
from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.profile import PROFILES
from veen_storage import create


@contextmanager
def remove_if_full(folder: Path) -> Iterator[None]:
    """Remove a new folder if the disk is full, so that the user can free space and repeat the command."""
    was_there = folder.exists()
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSPC and not was_there:
            shutil.rmtree(folder, ignore_errors=True)
        raise


@command(
    "veen hub init --data-dir hub --admin admin",
    "veen hub init --data-dir hub --no-admin --profile bulk",
)
@new_data_dir_option
@keys_dir_option
@click.option(
    "--admin",
    shell_complete=completions.files,
    help="Admin, who issues tokens and sends admin requests: an identity's folder or card, or a key in hex.",
)
@click.option("--no-admin", is_flag=True, help="Have no admin: hub.yaml names issuers, or the hub is open.")
@click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="default",
    show_default=True,
    help="Padding and epochs; fixed for the life of the hub.",
)
@click.option("--zstd", type=Integer(1, 19), help="Compress sealed chunks at this level.")
def init(
    out: Output,
    *,
    data_dir: Path,
    keys_dir: Path | None,
    admin: str | None,
    no_admin: bool,
    profile: str,
    zstd: int | None,
) -> Answer:
    """Create a hub: a data directory with an identity of its own.

    The hub accepts tokens that the admin signs, and the admin's requests for checkpoints, anchors and
    retention. Create the admin's identity first with `veen keygen`.
    """
    del out
    if (admin is None) == (not no_admin):
        raise click.UsageError("give the admin with --admin FOLDER, or --no-admin.")
    admin_pk = verify_key_named(admin) if admin is not None else None
    with private_umask(), remove_if_full(data_dir):
        identity = create(
            data_dir,
            SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE))),
            UnixTime(times.now()),
            profile=PROFILES[profile],
            zstd_level=zstd,
            admin_pk=admin_pk,
            keys_directory=keys_dir,
        )
    hub_id, hub_pk = identity.hub_id.hex(), identity.newest.hub_pk.hex()
    return Answer(
        {
            "data_dir": str(data_dir),
            "hub_id": hub_id,
            "hub_pk": hub_pk,
            "admin_pk": admin_pk.hex() if admin_pk else None,
            "profile": profile,
        },
        [
            f"created a hub in {data_dir}",
            *fields(
                {
                    "  hub_id": f"{hub_id}  (clients pin this: --trust)",
                    "  hub_pk": hub_pk,
                    "  admin": admin_pk.hex() if admin_pk else "none",
                }
            ),
            *_next(data_dir, admin_pk is not None),
        ],
    )


def _next(data_dir: Path, has_admin: bool) -> list[str]:
    start = f"veen hub start --data-dir {quote(str(data_dir))}"
    if has_admin:
        return [f"run it with: {start}"]
    return [
        "without an admin, no client can write to the hub yet:",
        f"  to let anybody write, run: {start} --open",
        f"  to accept tokens, name their issuers in hub.yaml and run: {start} --config hub.yaml",
    ]
