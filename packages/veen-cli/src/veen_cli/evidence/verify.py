"""``veen verify``: what are these files, and do they hold?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from veen_cli.arguments import completions, times
from veen_cli.evidence.checks import Judge, Verdict
from veen_cli.evidence.found import Found
from veen_cli.evidence.recognize import recognize_all
from veen_cli.frame import settings
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.identity.hub_records import Remembered
from veen_cli.identity.identity_folder import Folder
from veen_core import hub_identity, stream
from veen_core.errors import IdentityError, VeenError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, HubPk, UnixTime
from veen_core.wire import Wire
from veen_hub.client.wire.connection import IDENTITY_RECORD
from veen_storage.copies.export import Manifest, verify_export
from veen_storage.copies.export.format import MANIFEST

MARKS = {True: "✓", False: "✗", None: "?"}


def pinned(trust: str | None) -> HubId | None:
    trust = settings.parse_trust(settings.value_or_context("trust", trust))
    return HubId.from_hex(trust) if trust is not None and trust != settings.FIRST else None


def identity_of(pin: HubId | None, found: Sequence[Found], client: str | None) -> HubIdentity | None:
    """The pinned hub's identity: among the files, or as the client knows it; None if there is none."""
    if pin is None:
        return None
    shown = [each.thing for each in found if isinstance(each.thing, HubIdentity)]
    client = settings.value_or_context("client", client)
    if client is not None:
        content = Remembered(Folder(Path(client).expanduser()).state).load(pin, IDENTITY_RECORD)
        shown += [HubIdentity.decode(content)] if content is not None else []
    fitting = [each for each in shown if _is_pinned(each, pin)]
    return max(fitting, key=lambda each: len(each.hub_keys), default=None)


def _is_pinned(identity: HubIdentity, pin: HubId) -> bool:
    """By hub_id or first hub_pk, whole and endorsed."""
    try:
        hub_identity.verify_identity(identity)
    except IdentityError:
        return False
    return bytes(pin) in (bytes(identity.hub_id), bytes(identity.hub_keys[0].hub_pk))


def _hub_of(folder: Path, pin: HubId) -> HubId:
    """The pin, if it is a hub_id; the hub_id that follows from it, if it is the first hub_pk (B13)."""
    manifest = Manifest.decode((folder / MANIFEST).read_bytes())
    follows = stream.hub_id(HubPk(pin))
    return follows if manifest.hub_id == follows else pin


def _export(folder: Path, pin: HubId | None) -> Verdict:
    if not (folder / MANIFEST).exists():
        return Verdict(
            str(folder),
            "folder",
            None,
            "nothing in it was judged: it is no export; a data directory is checked by `veen hub fsck`",
        )
    if pin is None:
        return Verdict(str(folder), "export", None, "cannot be judged: pin the hub with --trust HUB_ID")
    try:
        made = verify_export(folder, _hub_of(folder, pin))
    except VeenError as exc:
        return Verdict(str(folder), "export", False, str(exc))
    manifest = made.manifest
    return Verdict(
        str(folder),
        "export",
        True,
        f"entries {manifest.from_seq} to {manifest.to_seq} of label {manifest.label.hex()[:16]}…, "
        f"{made.checkpoints} checkpoints, {made.pruned} payloads pruned; root {made.mmr_root.hex()[:16]}…",
    )


def judge(
    out: Output, files: Sequence[str], trust: str | None, client: str | None, kind: type[Wire] | None = None
) -> list[Verdict]:
    """Judge files and folders together; the first must be of ``kind``, if one is named."""
    with out.progress("verifying"):
        return _judge(files, trust, client, kind)


def _judge(
    files: Sequence[str], trust: str | None, client: str | None, kind: type[Wire] | None
) -> list[Verdict]:
    pin = pinned(trust)
    named = [path for name in files for path in _opened(Path(name))]
    folders = [path for path in named if path.is_dir()]
    found, unreadable = _recognized(path for path in named if not path.is_dir())
    first_is_known = not any(each.where == str(named[0]) for each in unreadable)
    if kind is not None and first_is_known and not (found and isinstance(found[0].thing, kind)):
        name = found[0].name if found else "folder"
        raise CommandFailed(
            f"{files[0]} holds {name}, not a {kind.codec.name}: use `veen verify`", Exit.USAGE
        )
    identity = identity_of(pin, found, client)
    verdicts = Judge(found, pin, identity, UnixTime(times.now())).verdicts()
    return [*verdicts, *unreadable, *(_export(folder, pin) for folder in folders)]


def _opened(named: Path) -> list[Path]:
    """A folder of evidence is all that is in it; an export, a data directory or an empty folder is itself.

    Nothing is passed over: what was not judged must not look as if it held. Links to folders are kept, not
    followed.
    """
    found, left = [], [named]
    while left:
        path = left.pop()
        is_one = _is_whole(path) or (path.is_symlink() and path != named)
        inside = [] if is_one else [each for each in path.iterdir() if each.is_file() or each.is_dir()]
        left += inside
        found += [] if inside else [path]
    return sorted(found)


def _is_whole(path: Path) -> bool:
    return not path.is_dir() or (path / MANIFEST).exists() or (path / "VERSION").exists()


def _recognized(paths: Iterable[Path]) -> tuple[list[Found], list[Verdict]]:
    """What the files are; of one that is nothing of ours, a verdict that says so."""
    found: list[Found] = []
    unreadable: list[Verdict] = []
    for path in paths:
        try:
            found += recognize_all([str(path)])
        except VeenError as exc:
            unreadable.append(Verdict(str(path), "unknown", False, str(exc)))
        except CommandFailed as exc:
            unreadable.append(Verdict(str(path), "unknown", False, exc.format_message()))
    return found, unreadable


def report(out: Output, verdicts: Sequence[Verdict]) -> Answer:
    """All of them; not all hold, exit 3."""
    data: dict[str, Any] = {
        "holds": all(each.holds for each in verdicts),
        "verdicts": [
            {"file": each.where, "kind": each.what, "holds": each.holds, "why": each.why} for each in verdicts
        ],
    }
    answer = Answer(data, [f"{MARKS[each.holds]} {each.where}: {each.what}: {each.why}" for each in verdicts])
    wrong = [each for each in verdicts if each.holds is False]
    open_ = [each for each in verdicts if each.holds is None]
    if not wrong and not open_:
        return answer
    out.print_answer(answer)
    if wrong:
        raise CommandFailed(f"{wrong[0].where} does not hold: {wrong[0].why}", Exit.PROTOCOL)
    raise CommandFailed(f"{open_[0].where}: {open_[0].why}", Exit.PROTOCOL)


def trust_options(work: Callable[..., Any]) -> Callable[..., Any]:
    client = click.option(
        "--client",
        envvar="VEEN_CLIENT",
        show_envvar=True,
        shell_complete=completions.folders,
        help="An identity that knows the hub already.",
    )
    trust = click.option(
        "--trust", envvar="VEEN_TRUST", show_envvar=True, help="The hub's hub_id or first hub_pk, in hex."
    )
    return trust(client(work))


@command(
    "veen verify receipt.cbor hub-identity.cbor --trust HUB_ID",
    "veen verify proof.cbor receipt.cbor checkpoint.cbor --trust HUB_ID --client bob",
    "veen verify evidence/ --trust HUB_ID",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=completions.files)
@trust_options
def verify(out: Output, *, files: tuple[str, ...], trust: str | None, client: str | None) -> Answer:
    """Say what files are and whether they hold: evidence of any kind, exports, cards, tokens.

    They are judged together: a proof against the receipts and checkpoints beside it, those under the
    identity of the hub you pin. Exits with 3 if anything does not hold, or cannot be judged.
    """
    return report(out, judge(out, files, trust, client))
