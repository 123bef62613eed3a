"""``veen hub clone``, ``reshard``, ``fork`` and ``export``: copy, move or fork a hub, and export evidence."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any, Final, Literal

import click
from click.core import ParameterSource

from veen_cli.arguments import completions, times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.private_files import private_umask
from veen_cli.frame import settings
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.hub.data_directory import data_dir_option, is_sharded_directory, keys_dir_option
from veen_cli.identity.identity_folder import verify_key_named
from veen_core import stream as streams
from veen_core.ids import Epoch, HubId, Label, StreamSeq, UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_storage import AbsentError
from veen_storage.copies.clone import clone as copy
from veen_storage.copies.export import Manifest, export_hub, export_window
from veen_storage.copies.export import export as write_export
from veen_storage.shards.clone import clone_sharded as copy_shards
from veen_storage.shards.clone import fork_hub
from veen_storage.shards.reshard import reshard as move
from veen_storage.shards.sharded_layout import MAX_SHARDS
from veen_storage.shards.sharded_source import open_hub

NO_END: Final = 2**63
"""End of a time window without ``--until``."""
RANGE_FLAGS: Final = {
    "stream": "--stream",
    "label": "--label",
    "epoch": "--epoch",
    "from_seq": "--from",
    "upto": "--upto",
    "since": "--since",
    "until": "--until",
}
"""Options of ``veen hub export`` that choose a part of the hub, by parameter."""


def _check_empty(_ctx: click.Context, _param: click.Parameter, target: Path) -> Path:
    """Refuse a target folder that is not empty (a click callback)."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise CommandFailed(
            f"{target} is not empty",
            Exit.USAGE,
            "choose another folder for --out, or remove what an interrupted copy has left",
        )
    return target


target_option = click.option(
    "--out",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    callback=_check_empty,
    help="New or empty folder to write to.",
)


@command(
    "veen hub clone --data-dir hub --out backup", "veen hub clone --data-dir hub --out new-home --with-keys"
)
@data_dir_option
@keys_dir_option
@target_option
@click.option("--with-keys", is_flag=True, help="Copy the signing keys too: only to move a hub permanently.")
def clone(out: Output, *, data_dir: Path, keys_dir: Path | None, target: Path, with_keys: bool) -> Answer:
    """Copy a hub, running or not, into a new directory.

    A running hub continues, and is copied as it was when the command started. Without keys the copy can be
    checked and exported; to run it, give it the keys (`veen hub start --keys-dir`). Never run two directories
    with one key: they would contradict each other, and each contradiction convicts the hub. A hub with
    several shards is copied into a directory with one, and without keys.
    """
    sharded = is_sharded_directory(data_dir)
    if sharded and with_keys:
        raise CommandFailed(
            f"{data_dir} holds a hub with several shards, which is not copied with its keys",
            Exit.USAGE,
            "stop it and move it with `veen hub reshard`, or leave out --with-keys",
        )
    with private_umask(), out.progress("copying labels") as progress:
        if sharded:
            cut = copy_shards(data_dir, target, keys_directory=keys_dir, progress=progress.update)
        else:
            cut = copy(
                data_dir,
                target,
                with_keys=with_keys,
                keys_directory=keys_dir,
                progress=progress.update,
            )
    labels, entries = len(cut.labels), sum(each.stream_seq for each in cut.labels)
    return Answer(
        {"target": str(target), "labels": labels, "entries": entries, "with_keys": with_keys},
        [f"cloned {plural(entries, 'entry', 'entries')} in {plural(labels, 'label')} to {target}"],
    )


@command(
    "veen hub reshard --data-dir hub --shards 2 --out hub-of-two",
    "veen hub reshard --data-dir hub-of-two --shards 1 --out hub-of-one",
)
@data_dir_option
@keys_dir_option
@click.option(
    "--shards", type=Integer(1, MAX_SHARDS), required=True, help="Number of shards of the new directory."
)
@click.option(
    "--out",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="New folder for the hub; after a crash, the folder of the interrupted run.",
)
def reshard(out: Output, *, data_dir: Path, keys_dir: Path | None, shards: int, target: Path) -> Answer:
    """Move a stopped hub to another number of shards.

    The hub continues in the new directory, with its identity, and the old one cannot be started any more. No
    byte of a log changes: the digest of every file is compared before the old directory is given up. Set
    `shards` in hub.yaml to the new number.
    """
    with private_umask(), out.progress("copying labels") as progress:
        done = move(data_dir, target, shards, keys_directory=keys_dir, progress=progress.update)
    if done is None:
        return Answer(
            {"target": str(target), "finished": True}, [f"finished the interrupted move to {target}"]
        )
    data = {
        "target": str(target),
        "shards_before": done.shards_before,
        "shards": done.shards,
        "labels": done.labels,
        "entries": done.entries,
        "files": done.files,
        "digest_before": done.digest_before,
        "digest_after": done.digest_after,
    }
    counts = f"{plural(done.entries, 'entry', 'entries')} in {plural(done.labels, 'label')}"
    return Answer(
        data,
        [
            f"moved {counts} from {plural(done.shards_before, 'shard')} to {done.shards}: {target}",
            *fields({"  digest before": done.digest_before, "  digest after": done.digest_after}),
        ],
    )


@command("veen hub fork --data-dir hub --out fork --admin admin")
@data_dir_option
@keys_dir_option
@target_option
@click.option(
    "--admin",
    required=True,
    shell_complete=completions.files,
    help="Admin of the new hub: an identity's folder or card, or a key in hex.",
)
def fork(out: Output, *, data_dir: Path, keys_dir: Path | None, target: Path, admin: str) -> Answer:
    """Create a new hub that keeps another hub's log as evidence.

    The new hub has its own identity and labels. The old log is in ancestry/ and can still be verified.
    """
    with private_umask(), out.progress("copying labels") as progress:
        record = fork_hub(
            data_dir,
            target,
            SigningKey(SigningSeed(os.urandom(SigningSeed.SIZE))),
            UnixTime(times.now()),
            admin_pk=verify_key_named(admin),
            keys_directory=keys_dir,
            progress=progress.update,
        )
    data = {
        "target": str(target),
        "old_hub": record.old_hub.hex(),
        "new_hub": record.new_hub.hex(),
        "labels": record.labels,
        "signed_by_old": record.old_sig is not None,
    }
    return Answer(
        data, [f"forked into {target}", *fields({f"  {key}": value for key, value in data.items()})]
    )


@command(
    "veen hub export --data-dir hub --stream orders --out evidence",
    "veen hub export --data-dir hub --stream orders --from 10 --upto 20 --out evidence",
    "veen hub export --data-dir hub --all --out whole-hub",
)
@data_dir_option
@target_option
@click.option(
    "--stream", "-s", help="Name of the stream, or its id in hex [default: VEEN_STREAM, else the context's]."
)
@click.option("--label", type=Hex(Label), help="Label in hex, instead of a stream.")
@click.option(
    "--all",
    "whole",
    is_flag=True,
    help="Export every label and the hub log, which shows that none is missing.",
)
@click.option("--epoch", type=Integer(0), default=0, help="Epoch of the stream, at a hub with epochs.")
@click.option(
    "--from", "from_seq", type=Integer(1), default=1, show_default=True, help="Number of the first entry."
)
@click.option("--upto", type=Integer(1), help="Number of the last entry [default: the newest].")
@click.option("--since", type=times.Moment(), help="Export by time instead: entries from this hub time on.")
@click.option("--until", type=times.Moment(), help="With or without --since: entries up to this hub time.")
@click.option(
    "--form",
    type=click.Choice(["set", "chunks"]),
    default="set",
    show_default=True,
    help="set: files of receipts and payloads; chunks: chunk files.",
)
def export(
    out: Output,
    *,
    data_dir: Path,
    target: Path,
    stream: str | None,
    label: Label | None,
    whole: bool,
    epoch: int,
    from_seq: int,
    upto: int | None,
    since: int | None,
    until: int | None,
    form: Literal["set", "chunks"],
) -> Answer:
    """Write a range of a stream, or a whole hub, to a folder that can be verified offline.

    `veen verify FOLDER --trust HUB_ID` verifies it without the hub. With --all the folder has an export of
    each label under labels/, and the hub log under hublog/: the hub checkpoint commits to every label, so a
    label that is missing or too short is found.
    """
    if whole:
        return _export_hub(out, data_dir, target, form)
    if label is None:
        stream = settings.value_or_context(
            "stream", stream if stream is not None else os.environ.get("VEEN_STREAM")
        )
    if (stream is None) == (label is None):
        raise click.UsageError("name the log: give --stream NAME or --label HEX, or --all for every label.")
    if upto is not None and upto < from_seq:
        raise click.UsageError(f"--from {from_seq} --upto {upto}: the range is empty.")
    with open_hub(data_dir) as hub, out.progress("exporting entries") as progress:
        log_label = _label(hub.main.identity.hub_id, stream, label, epoch)
        store = hub.of(log_label)
        with naming_stream(stream):
            if since is not None or until is not None:
                window = (UnixTime(since or 0), UnixTime(until if until is not None else NO_END))
                made = export_window(store, log_label, *window, target, form=form, progress=progress.update)
            else:
                head = store.read.head(log_label)
                if head is None:
                    raise AbsentError(f"label {log_label.hex()} has no entries")
                last = StreamSeq(upto if upto is not None else head.stream_seq)
                made = write_export(
                    store, log_label, StreamSeq(from_seq), last, target, form=form, progress=progress.update
                )
    return Answer(_export_dict(made, target), _lines(made, target))


def _export_hub(out: Output, data_dir: Path, target: Path, form: Literal["set", "chunks"]) -> Answer:
    source = click.get_current_context().get_parameter_source
    for name, flag in RANGE_FLAGS.items():
        if source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"--all exports every entry of every label: remove {flag}.")
    with open_hub(data_dir) as hub, out.progress("exporting labels") as progress:
        made = export_hub(hub, target, form=form, progress=progress.update)
    hub_id = made.hub_id.hex()
    entries = plural(made.size, "entry", "entries")
    return Answer(
        {
            "target": str(target),
            "hub_id": hub_id,
            "labels": made.labels,
            "hub_log_size": made.size,
            "form": form,
        },
        [
            f"exported {plural(made.labels, 'label')} and the hub log of {entries} to {target}",
            f"verify it anywhere with: veen verify {quote(str(target))} --trust {hub_id}",
        ],
    )


@contextmanager
def naming_stream(stream: str | None) -> Iterator[None]:
    """Name the stream if the range does not exist: the storage knows only its label."""
    try:
        yield
    except AbsentError as exc:
        where = f"stream {stream}: " if stream is not None else ""
        raise CommandFailed(
            f"{where}{exc.message}", Exit.USAGE, "check the stream's name, --epoch and the range"
        ) from None


def _label(hub_id: HubId, stream: str | None, label: Label | None, epoch: int) -> Label:
    if label is not None:
        return label
    assert stream is not None
    routing_key = streams.routing_key(hub_id)
    return streams.label(routing_key, streams.stream_id(stream), Epoch(epoch))


def _export_dict(made: Manifest, target: Path) -> dict[str, Any]:
    return {
        "target": str(target),
        "hub_id": made.hub_id.hex(),
        "label": made.label.hex(),
        "from_seq": made.from_seq,
        "to_seq": made.to_seq,
        "form": made.form,
        "files": [file.name for file in made.files],
    }


def _lines(made: Manifest, target: Path) -> list[str]:
    return [
        f"exported entries {made.from_seq} to {made.to_seq} of label {made.label.hex()[:16]}… to {target}",
        f"verify it anywhere with: veen verify {quote(str(target))} --trust {made.hub_id.hex()}",
    ]
