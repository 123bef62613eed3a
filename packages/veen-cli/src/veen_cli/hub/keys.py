"""``veen hub keys`` and ``rotate``: a hub's identity, and its next signing key (core §8.4, KEX0.1)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Final

import click
from click.core import ParameterSource

from veen_cli.arguments import times
from veen_cli.arguments.passphrase import Passphrase
from veen_cli.arguments.tls_files import load_tls
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.hub.data_directory import data_dir_flag, data_dir_option, existing, keys_dir_option
from veen_core import hub_log
from veen_core.hub_identity import HubIdentity
from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import check_name
from veen_core.tlog.tree_head import parse_signed_head
from veen_storage import Layout, read_registry
from veen_storage import read_identity as read_stored_identity
from veen_storage import rotate as add_key
from veen_storage.shards.sharded_layout import CONTROL, ShardedLayout, is_sharded

NO_CHECKPOINT: Final = (
    "the hub log has no checkpoint yet; if hub.yaml sets hub_log.origin, start the hub and use --hub"
)
UNPINNED: Final = "not pinned: compare hub_id with the one that the operator gave you (--trust HUB_ID)"


def read_identity(data_dir: Path) -> HubIdentity:
    """Read and verify the identity of a data directory; the hub may be running."""
    if is_sharded(data_dir):
        control = ShardedLayout(data_dir).part(CONTROL)
        return read_stored_identity(control, read_registry(control, part=True).hub_id)
    layout = Layout(data_dir)
    return read_stored_identity(layout, read_registry(layout).hub_id)


def identity_dict(identity: HubIdentity) -> dict[str, object]:
    return {
        "hub_id": identity.hub_id.hex(),
        "keys": [
            {
                "key_id": key.key_id.hex(),
                "hub_pk": key.hub_pk.hex(),
                "valid_from": key.valid_from,
                "valid_until": key.valid_until,
            }
            for key in identity.hub_keys
        ],
    }


def identity_lines(identity: HubIdentity) -> list[str]:
    found = fields({"hub_id": identity.hub_id.hex()})
    for number, key in enumerate(identity.hub_keys, 1):
        until = f" until {times.format_utc(key.valid_until)}" if key.valid_until is not None else ""
        found.append(f"key {number}: {key.hub_pk.hex()} from {times.format_utc(key.valid_from)}{until}")
    return found


def fetch_identity(
    out: Output, hub: str, trust: str | None, tls: Mapping[str, str | None], *, with_origin: bool = False
) -> tuple[HubIdentity, bool, str | None]:
    """Return a running hub's signed identity, whether it is the pinned one, and the name of its hub log.

    The name is that of its hub checkpoint, else the configured one; None if neither exists.
    """
    # Imported here: a data directory needs no client.
    from veen_cli.frame.connection import Target  # noqa: PLC0415 - with --hub only: loads the client
    from veen_cli.hub.status import fetch, fetch_hub_checkpoint  # noqa: PLC0415 - as above

    trust = settings.parse_trust(settings.value_or_context("trust", trust))
    target = Target(
        url=settings.parse_hub_url(hub),
        trust=None if trust == settings.FIRST else trust,
        folder=None,
        passphrase=Passphrase(),
        tls=load_tls(**tls),
        wait=2.0,
        out=out,
    )
    status, pinned = loop.run(fetch(target))
    if not with_origin:
        return status.identity, pinned, None
    signed = loop.run(fetch_hub_checkpoint(target))
    if signed is None:
        named = status.hub_log_origin
        return status.identity, pinned, check_name(named, "hub_log_origin") if named is not None else None
    hub_log.verify_hub_checkpoint(status.identity, signed, origin=signed.head.origin)
    return status.identity, pinned, signed.head.origin


@command(
    "veen hub keys --data-dir hub",
    "veen hub keys --hub https://hub.example --trust HUB_ID --out hub-identity.cbor",
    "veen hub keys --note --data-dir hub",
    "veen context add work --trust $(veen hub keys --data-dir hub --quiet) --hub URL",
)
@data_dir_flag("The hub's data directory.")
@click.option(
    "--hub",
    envvar="VEEN_HUB",
    show_envvar=True,
    help="Ask the hub at this address instead; --trust names the hub that you expect there.",
)
@click.option(
    "--trust",
    envvar="VEEN_TRUST",
    show_envvar=True,
    help="With --hub: its hub_id or first hub_pk in hex.",
)
@click.option(
    "--ca",
    type=click.Path(exists=True),
    help="With --hub: PEM file of the authority that signed its certificate (TLS).",
)
@click.option(
    "--cert",
    type=click.Path(exists=True),
    help="With --hub: PEM file of the client certificate to present (TLS).",
)
@click.option(
    "--cert-key", type=click.Path(exists=True), help="With --hub: PEM file of that certificate's key."
)
@click.option(
    "--out",
    "target",
    type=click.Path(path_type=Path),
    help="Write the identity to this file, for `veen verify`.",
)
@click.option(
    "--note",
    is_flag=True,
    help="Print the verifier keys of the hub log alone, for witnesses and witness policies.",
)
def keys(
    out: Output,
    *,
    data_dir: str | None,
    hub: str | None,
    trust: str | None,
    target: Path | None,
    note: bool,
    **tls: str | None,
) -> Answer:
    """Show a hub's identity, hub_id and keys, or write it to a file.

    The identity comes from a data directory, or from a running hub (--hub). `veen verify` needs it to verify
    evidence without the hub. Give the hub_id to the hub's clients, who pin it; --quiet prints it alone. If
    variables or the context name both a directory and a hub, the directory is used.

    --note prints a line per key, `NAME+ID+KEY`: the key with which the hub signs its hub log (C2SP
    signed-note). Witnesses are configured with it, and a witness policy names it after the word `log`. If
    hub.yaml sets hub_log.origin, use --hub until the hub log has a checkpoint: a data directory does not
    know the name before.
    """
    source = click.get_current_context().get_parameter_source
    typed = {name for name in ("data_dir", "hub") if source(name) is ParameterSource.COMMANDLINE}
    if len(typed) > 1:
        raise click.UsageError("give --data-dir or --hub, not both.")
    directory = settings.value_or_context("data_dir", data_dir) if "hub" not in typed else None
    address = settings.value_or_context("hub", hub) if directory is None else None
    pinned, origin = True, None
    if address is not None:
        identity, pinned, origin = fetch_identity(out, address, trust, tls, with_origin=note)
    elif directory is not None:
        identity = read_identity(existing(directory))
        origin = read_origin(existing(directory)) if note else None
        if note and origin is None:
            out.note(f"note: {NO_CHECKPOINT}")
    else:
        raise click.UsageError("--data-dir is missing: give it, or --hub; or set VEEN_DATA_DIR or VEEN_HUB.")
    if target is not None:
        target.write_bytes(identity.encode())
    verifiers = verifier_keys(identity, origin) if note else []
    if out.quiet and not out.as_json:
        for line in verifiers if note else [identity.hub_id.hex()] if target is None else []:
            click.echo(line)
    if not pinned:
        out.note(f"note: {UNPINNED}")
    data = {**identity_dict(identity), "pinned": pinned, "file": str(target) if target else None}
    if note:
        return Answer({**data, "verifier_keys": verifiers}, verifiers)
    return Answer(data, [*identity_lines(identity), *([f"wrote {target}"] if target else [])])


def read_origin(data_dir: Path) -> str | None:
    """Return the name of the hub log; None if the data directory has no hub checkpoint yet."""
    layout = ShardedLayout(data_dir).joined if is_sharded(data_dir) else Layout(data_dir)
    # A running hub writes the published checkpoint first, and the head file when it applies its journal.
    for path in (layout.hub_log_published, layout.hub_log_checkpoint):
        with suppress(FileNotFoundError):
            return parse_signed_head(path.read_bytes()).head.origin
    return None


def verifier_keys(identity: HubIdentity, origin: str | None) -> list[str]:
    """Return the keys that sign the hub log now or later, as C2SP verifier keys (P1)."""
    name = origin if origin is not None else hub_log.origin_of(identity.hub_id)
    now = times.now()
    return [
        hub_log.note_key(key, name).text
        for key in identity.hub_keys
        if key.valid_until is None or key.valid_until > now
    ]


@command("veen hub rotate --data-dir hub --window 7d")
@data_dir_option
@keys_dir_option
@click.option(
    "--window",
    type=times.Duration(),
    default="7d",
    show_default=True,
    help="How long the old key stays active.",
)
@click.option("--valid-from", type=times.Moment(), help="When the new key becomes valid [default: now].")
def rotate(
    out: Output, *, data_dir: Path, keys_dir: Path | None, window: int, valid_from: int | None
) -> Answer:
    """Give a stopped hub its next signing key.

    The old key endorses the new one, so clients that pinned the hub_id accept it. During the window,
    checkpoints carry the signatures of both keys.
    """
    del out
    identity = add_key(
        data_dir,
        SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE))),
        UnixTime(valid_from if valid_from is not None else times.now() + 1),
        window,
        keys_directory=keys_dir,
    )
    start = f"veen hub start --data-dir {quote(str(data_dir))}"
    return Answer(identity_dict(identity), [*identity_lines(identity), f"start the hub again: {start}"])
