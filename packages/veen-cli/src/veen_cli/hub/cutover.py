"""``veen hub successor``, ``handover``, ``promote`` and ``lost``: from a hub to its successor (P9)."""

from __future__ import annotations

import os
from pathlib import Path
from shlex import quote
from typing import Any

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.object_files import read_object, write_new
from veen_cli.arguments.private_files import private_umask
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.hub.admin import as_admin
from veen_cli.hub.copies import target_option
from veen_cli.hub.data_directory import data_dir_option
from veen_cli.identity.identity_folder import verify_key_named
from veen_core import cbor
from veen_core.api import ReceiptResponse, SubmitResponse
from veen_core.errors import DecodeError
from veen_core.handover import Handover
from veen_core.ids import HubId, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.receipt import Receipt
from veen_storage import Layout
from veen_storage.copies.promote import (
    ReceiptFate,
    lost_receipts,
    make_successor_key,
    read_successor_key,
)
from veen_storage.copies.promote import promote as make_successor

MAX_RECEIPT_FILE_BYTES = 256 * 1_048_576
"""Largest file of receipts that is read."""


@command("veen hub successor --new-keys successor-keys")
@click.option(
    "--new-keys",
    type=click.Path(path_type=Path),
    required=True,
    help="New folder for the key of the successor.",
)
def successor(out: Output, *, new_keys: Path) -> Answer:
    """Make the key of a hub's successor, and print its hub_id.

    Run it where the successor will run. `veen hub handover --new-hub` needs the hub_id, `veen hub promote`
    the key.
    """
    del out
    with private_umask():
        hub_id = make_successor_key(new_keys, SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE))))
    return Answer(
        {"hub_id": hub_id.hex(), "keys": str(new_keys)},
        [f"the successor will be hub {hub_id.hex()}", f"its key is in {new_keys}: keep it secret"],
    )


@command(
    "veen hub handover --client admin --new-hub NEW_HUB_ID --url http://127.0.0.1:8090 --out handover.cbor"
)
@connects
@click.option("--new-hub", type=Hex(HubId), required=True, help="hub_id of the successor.")
@click.option("--url", "url_of_successor", default="", help="Address that the successor will have.")
@click.option("--out", "file", type=click.Path(path_type=Path), help="Also write the record to this file.")
def handover(
    out: Output, *, target: Target, new_hub: HubId, url_of_successor: str, file: Path | None
) -> Answer:
    """End a running hub in favour of its successor.

    The hub accepts nothing more, signs a last hub checkpoint and the record that names the successor. Its
    log stays readable. This cannot be undone. Replicas get the record by themselves.
    """
    del out
    record = as_admin(target, lambda _hub, admin: admin.hand_over(new_hub, url_of_successor))
    if file is not None:
        write_new(file, record.encode())
    size = record.signed_head.head.size
    data = {
        "old_hub": record.old_hub.hex(),
        "new_hub": record.new_hub.hex(),
        "hub_ts": record.hub_ts,
        "hub_log_size": size,
        "attachments": record.attachments,
        "url": record.url,
        "file": str(file) if file is not None else None,
    }
    return Answer(
        data,
        [
            f"hub {record.old_hub.hex()[:16]}… has handed over to {record.new_hub.hex()[:16]}…",
            f"its hub log ends with {plural(size, 'entry', 'entries')}; it accepts nothing any more",
            "promote a replica with: veen hub promote --data-dir REPLICA --new-keys KEYS --out NEW",
        ],
    )


@command(
    "veen hub promote --data-dir replica --new-keys successor-keys --out new-hub --admin admin",
    "veen hub promote --data-dir replica --new-keys successor-keys --out new-hub --admin admin --unplanned",
)
@data_dir_option
@click.option(
    "--new-keys", type=click.Path(path_type=Path), required=True, help="Folder of `veen hub successor`."
)
@target_option
@click.option(
    "--admin",
    required=True,
    shell_complete=completions.files,
    help="Admin of the new hub: an identity's folder or card, or a key in hex.",
)
@click.option(
    "--handover",
    "file",
    type=click.Path(path_type=Path, exists=True),
    help="The handover record [default: the one that the replica has].",
)
@click.option(
    "--unplanned",
    is_flag=True,
    help="The primary is lost and there is no handover: promote with what this replica has.",
)
def promote(
    out: Output,
    *,
    data_dir: Path,
    new_keys: Path,
    target: Path,
    admin: str,
    file: Path | None,
    unplanned: bool,
) -> Answer:
    """Make a replica's successor: a new hub with the old log as evidence.

    A planned promotion uses the old hub's handover. The replica must be exactly at the point that the
    handover names, so that nothing is lost. An unplanned promotion (--unplanned) uses what the replica has;
    `veen hub lost` then lists what is missing. The successor has its own identity and labels; the old log is
    in ancestry/. Never start the old primary again after an unplanned promotion.
    """
    record = _handover_of(data_dir, file, unplanned=unplanned)
    with private_umask(), out.progress("copying labels") as progress:
        made = make_successor(
            data_dir,
            target,
            read_successor_key(new_keys),
            UnixTime(times.now()),
            handover=record,
            admin_pk=verify_key_named(admin),
            progress=progress.update,
        )
    data = {
        "target": str(target),
        "old_hub": made.old_hub.hex(),
        "new_hub": made.new_hub.hex(),
        "labels": made.labels,
        "planned": record is not None,
    }
    where = quote(str(target))
    proven = [
        "nothing is lost: it has exactly what the handover names",
        f"in a realm, make it the primary with: veen authority handover {where} --realm REALM",
    ]
    unknown = [
        f"find what is lost with: veen hub lost --data-dir {where} --receipts FILE",
        "in a realm, wait until the old hub's authority records have expired, then make it the primary with: "
        "veen authority set",
    ]
    return Answer(
        data,
        [
            f"promoted into {target}",
            *fields({f"  {key}": value for key, value in data.items()}),
            *(proven if record is not None else unknown),
        ],
    )


def _handover_of(data_dir: Path, file: Path | None, *, unplanned: bool) -> Handover | None:
    if unplanned and file is not None:
        raise click.UsageError("--unplanned and --handover exclude each other.")
    held = Layout(data_dir).handover
    if unplanned:
        if held.exists():
            raise CommandFailed(
                f"{data_dir} has a handover: the cutover is planned", Exit.USAGE, "leave out --unplanned"
            )
        return None
    if file is None and not held.exists():
        raise CommandFailed(
            f"{data_dir} has no handover record",
            Exit.USAGE,
            "run `veen hub handover` at the primary and wait for the replica; if the primary is lost, "
            "give --unplanned",
        )
    return read_object(Handover, file if file is not None else held)


@command("veen hub lost --data-dir new-hub --receipts receipts.cborseq")
@data_dir_option
@click.option(
    "--receipts",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    multiple=True,
    help="File with receipts of the old hub: one, or a CBOR sequence. Repeat for more files.",
)
def lost(out: Output, *, data_dir: Path, files: tuple[Path, ...]) -> Answer:
    """List acknowledged messages that a successor never had.

    The data directory is the successor's, whose ancestor is compared, or a replica's. Each receipt is
    verified under the old hub's identity. The exit code is 0 only if every receipt is kept.
    """
    receipts = list({each.encode(): each for file in files for each in read_receipts(file)}.values())
    if not receipts:
        raise CommandFailed(
            "the files hold no receipt, so nothing was compared",
            Exit.USAGE,
            "give files of `veen receipt --out`",
        )
    with out.progress("comparing receipts"):
        fates = list(lost_receipts(data_dir, receipts))
    missing = [fate for fate in fates if fate.fate != "kept"]
    data = {
        "receipts": len(fates),
        "kept": len(fates) - len(missing),
        "missing": [_fate_dict(fate) for fate in missing],
    }
    lines = [f"{plural(len(fates), 'receipt')}: {len(fates) - len(missing)} kept, {len(missing)} not"]
    lines += [_fate_line(fate) for fate in missing]
    return Answer(data, lines, exit_code=Exit.PROTOCOL if missing else Exit.OK)


def read_receipts(file: Path) -> list[Receipt]:
    """Read receipts from a file: bare ones, or answers of a hub that contain one each."""
    if file.stat().st_size > MAX_RECEIPT_FILE_BYTES:
        raise CommandFailed(f"{file} is larger than {MAX_RECEIPT_FILE_BYTES} bytes", Exit.USAGE, "split it")
    try:
        return [_receipt(item) for item in cbor.split_sequence(file.read_bytes())]
    except DecodeError as exc:
        raise CommandFailed(
            f"{file} does not hold receipts: {exc}", Exit.PROTOCOL, "give files of `veen receipt --out`"
        ) from None


def _receipt(item: bytes) -> Receipt:
    for kind in (SubmitResponse, ReceiptResponse):
        try:
            return kind.decode(item).receipt
        except DecodeError:
            continue
    return Receipt.decode(item)


def _fate_dict(fate: ReceiptFate) -> dict[str, Any]:
    return {
        "label": fate.receipt.label.hex(),
        "stream_seq": fate.receipt.stream_seq,
        "hub_ts": fate.receipt.hub_ts,
        "fate": fate.fate,
        "upto_seq": fate.upto_seq,
    }


def _fate_line(fate: ReceiptFate) -> str:
    why = {
        "lost": f"lost: the successor's copy of the label ends at {fate.upto_seq}",
        "contradicted": "contradicted: the copy has another message there, and both receipts convict the hub",
        "foreign": "foreign: the old hub did not sign this receipt",
        "kept": "kept",
    }[fate.fate]
    return f"  label {fate.receipt.label.hex()[:16]}… entry {fate.receipt.stream_seq}: {why}"
