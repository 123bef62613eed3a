"""``veen verify``: recognize files and verify them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from veen_cli.arguments import completions, times
from veen_cli.arguments.object_files import writable
from veen_cli.evidence.bundle_parts import is_part, verify_parts
from veen_cli.evidence.client_comparison import ClientComparison
from veen_cli.evidence.hub_log import cosigned_step, is_pinned, verify_checkpoint_note
from veen_cli.evidence.page import write_page
from veen_cli.evidence.recognition.recognize import recognize_all
from veen_cli.evidence.recognition.recognized import Recognized
from veen_cli.evidence.rpc_transcript import identities
from veen_cli.evidence.verdicts import Verdict
from veen_cli.evidence.verification import NO_PIN, EvidenceVerifier
from veen_cli.frame import settings
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import witness_policy_file, witnesses_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.identity.hub_records import CheckedStateStore
from veen_cli.identity.identity_folder import Folder
from veen_cli.identity.verified_roots import accepted_hub_checkpoint, client_knowledge
from veen_core import hub_log, stream
from veen_core.errors import QuorumError, VeenError
from veen_core.export import MANIFEST
from veen_core.hub_evidence import HubEvidence, check_log_name
from veen_core.hub_export import HUB_EXPORT, HubManifest
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, HubPk, UnixTime
from veen_core.tlog.policy import WitnessPolicy
from veen_core.wire import Wire
from veen_hub.client.hub_log import load_policy
from veen_hub.client.wire.connection import IDENTITY_RECORD
from veen_overlays.query.result.result_file import ResultFile
from veen_overlays.rpc.transcript import Transcript
from veen_storage.copies.export import Manifest, VerifiedExport, verify_export, verify_hub_export
from veen_storage.copies.export.range_verifier import MAX_WRITERS

NO_HUB_LOG: Final = "the hub log is empty, so nothing shows whether a label is missing"
NO_HUB_HEAD: Final = "the export has no hub checkpoint that covers it, which a witness could have cosigned"
MARKS: Final = {True: "✓", False: "✗", None: "?"}


NOT_CHECKED: Final = (
    "NOT CHECKED: client_seq (I9) and tokens (H5) of every writer, because the export has more than "
    f"{MAX_WRITERS:,} writers or tokens"
)


def pinned_hub(trust: str | None) -> HubId | None:
    trust = settings.parse_trust(settings.value_or_context("trust", trust))
    return HubId.from_hex(trust) if trust is not None and trust != settings.FIRST else None


def client_folder(client: str | None) -> Folder | None:
    client = settings.value_or_context("client", client)
    if client is None:
        return None
    folder = Folder(Path(client).expanduser())
    folder.must_exist()
    return folder


def pinned_identity(
    pin: HubId | None, found: Sequence[Recognized], folder: Folder | None
) -> HubIdentity | None:
    """Return the pinned hub's identity from the files or the client's state; the one with the most keys."""
    if pin is None:
        return None
    shown = [each.thing for each in found if isinstance(each.thing, HubIdentity)]
    shown += [each.thing.identity for each in found if isinstance(each.thing, HubEvidence)]
    for each in found:
        shown += each.thing.evidence.identities if isinstance(each.thing, ResultFile) else ()
        shown += identities(each.thing) if isinstance(each.thing, Transcript) else ()
    if folder is not None:
        content = CheckedStateStore(folder.state).load(pin, IDENTITY_RECORD)
        shown += [HubIdentity.decode(content)] if content is not None else []
    fitting = [each for each in shown if is_pinned(each, pin)]
    return max(fitting, key=lambda each: len(each.hub_keys), default=None)


def _hub_of(kind: type[Manifest | HubManifest], file: Path, pin: HubId) -> HubId:
    """Return the pinned hub_id; if the pin is the first hub_pk, derive the hub_id from it (B13)."""
    manifest = kind.decode(file.read_bytes())
    follows = stream.hub_id(HubPk(pin))
    return follows if manifest.hub_id == follows else pin


def _verify_hub_export(folder: Path, pin: HubId, policy: WitnessPolicy | None) -> Verdict:
    what = "export of a hub"
    try:
        made = verify_hub_export(folder, _hub_of(HubManifest, folder / HUB_EXPORT, pin))
        signed = made.published or made.checkpoint
        step = verify_checkpoint_note(made.identity, signed, policy) if signed is not None else NO_HUB_LOG
        if signed is None and policy is not None:
            raise QuorumError(f"{NO_HUB_LOG}: no witness can have cosigned it (C2SP tlog-policy)")
    except VeenError as exc:
        return Verdict(str(folder), what, False, str(exc))
    why = f"{plural(made.entries, 'entry', 'entries')} in {plural(made.manifest.labels, 'label')}; {step}"
    if signed is not None and made.uncovered:
        why += f"; {plural(len(made.uncovered), 'label')} with entries after the newest hub checkpoint"
    return Verdict(str(folder), what, True, why, None if made.followed_all else NOT_CHECKED)


def _verify_folder(
    folder: Path, pin: HubId | None, policy: WitnessPolicy | None, client: ClientComparison | None
) -> Verdict:
    if (folder / HUB_EXPORT).exists():
        if pin is None:
            return Verdict(str(folder), "export of a hub", None, NO_PIN)
        return _verify_hub_export(folder, pin, policy)
    return _verify_export(folder, pin, policy, client)


def _verify_export(
    folder: Path, pin: HubId | None, policy: WitnessPolicy | None, client: ClientComparison | None
) -> Verdict:
    if not (folder / MANIFEST).exists():
        return Verdict(
            str(folder),
            "folder",
            None,
            "is not an export, and nothing in it was verified; `veen hub fsck` checks a data directory",
        )
    if pin is None:
        return Verdict(str(folder), "export", None, NO_PIN)
    roots = client.exported_roots() if client is not None else None
    try:
        made = verify_export(folder, _hub_of(Manifest, folder / MANIFEST, pin), roots)
        if roots is not None:
            roots.check_ends(made.manifest)
            if roots.contradiction is not None:
                raise roots.contradiction
        cosigned = f"; {_check_quorum(made, policy)}" if policy is not None else ""
    except VeenError as exc:
        return Verdict(str(folder), "export", False, str(exc))
    manifest = made.manifest
    why = (
        f"entries {manifest.from_seq} to {manifest.to_seq} of label {manifest.label.hex()[:16]}…, "
        f"{plural(made.checkpoints, 'checkpoint')}, {plural(made.pruned, 'pruned payload')}; "
        f"root {made.mmr_root.hex()[:16]}…{cosigned}"
    )
    skipped = None if made.followed_all else NOT_CHECKED
    if client is not None and roots is not None:
        remark, not_compared = client.result(manifest.label, roots.compared_at or manifest.to_seq)
        why, skipped = why + remark, "; ".join(filter(None, (skipped, not_compared))) or None
    return Verdict(str(folder), "export", True, why, skipped)


def _check_quorum(made: VerifiedExport, policy: WitnessPolicy) -> str:
    """Say which witnesses cosigned the export's hub checkpoint; raise unless they are a quorum (P1)."""
    identity, signed = made.identity, made.hub_checkpoint
    if signed is None:
        raise QuorumError(f"{NO_HUB_HEAD} (C2SP tlog-policy)")
    origin = signed.head.origin
    check_log_name(identity, origin, policy, identity.hub_id, None)
    cosigned = policy.check(signed, log_keys=hub_log.note_keys(identity, origin))
    return cosigned_step(cosigned, policy)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustOptions:
    """Against what files are verified: the pinned hub, a client's state, a witness policy."""

    trust: str | None
    client: str | None
    witnesses: str | None
    is_client_named: bool = False
    """Whether --client was given; a client of the environment or the context is compared with if possible."""

    def policy(self) -> WitnessPolicy | None:
        path = witness_policy_file(self.witnesses)
        return load_policy(path) if path is not None else None


def verify_files(
    out: Output, files: Sequence[str], against: TrustOptions, kind: type[Wire] | None = None
) -> list[Verdict]:
    """Verify files and folders together; the first must be of ``kind``, if one is given."""
    with out.progress("verifying"):
        return _verify_files(files, against, kind)


def _verify_files(files: Sequence[str], against: TrustOptions, kind: type[Wire] | None) -> list[Verdict]:
    pin, owner = pinned_hub(against.trust), client_folder(against.client)
    named = [path for name in files for path in _expand(Path(name))]
    folders = [path for path in named if path.is_dir()]
    files_named = [path for path in named if not path.is_dir()]
    parts = [path for path in files_named if is_part(path)]
    found, unreadable = _recognize(path for path in files_named if path not in parts)
    first_is_known = not any(each.where == str(named[0]) for each in unreadable)
    if kind is not None and first_is_known and not (found and isinstance(found[0].thing, kind)):
        name = found[0].name if found else "part of a bundle" if parts else "folder"
        raise CommandFailed(
            f"{files[0]} holds {name}, not {kind.codec.name}", Exit.USAGE, "use `veen verify` for other kinds"
        )
    identity = pinned_identity(pin, found, owner)
    client = None
    if owner is not None:
        client = _comparison(owner, identity, required=against.is_client_named)
    now = UnixTime(times.now())
    policy = against.policy()
    verifier = EvidenceVerifier(found, pin, identity, now, client=client, policy=policy)
    return [
        *verifier.verdicts(),
        *verify_parts(parts, pin, policy),
        *unreadable,
        *(_verify_folder(folder, pin, policy, client) for folder in folders),
    ]


def _comparison(owner: Folder, identity: HubIdentity | None, *, required: bool) -> ClientComparison:
    """Read what the client has verified of the pinned hub: nothing if the hub's identity is not known."""
    if identity is None:
        return ClientComparison(str(owner.root), (), None, required=required)
    hub = identity.hub_id
    known, accepted = client_knowledge(owner, hub), accepted_hub_checkpoint(owner, hub)
    return ClientComparison(str(owner.root), known, accepted, required=required)


def _expand(named: Path) -> list[Path]:
    """Return every file in a folder of evidence; an export, a data directory or an empty folder stays whole.

    No file is skipped: a file that was not verified must not look verified. Links to folders are not
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
    return not path.is_dir() or any((path / name).exists() for name in (MANIFEST, HUB_EXPORT, "VERSION"))


def _recognize(paths: Iterable[Path]) -> tuple[list[Recognized], list[Verdict]]:
    """Recognize the files; return a failed verdict for each that is not a VEEN file."""
    found: list[Recognized] = []
    unreadable: list[Verdict] = []
    for path in paths:
        try:
            found += recognize_all([str(path)])
        except (VeenError, CommandFailed) as exc:
            unreadable.append(Verdict(str(path), "unknown", False, str(exc)))
    return found, unreadable


def print_verdicts(
    out: Output, verdicts: Sequence[Verdict], *, allow_partial: bool = False, wrote: str | None = None
) -> Answer:
    """Return the answer if everything verifies; else print it and fail with exit code 3.

    ``wrote`` is a last line, about the page that was written.
    """
    data: dict[str, Any] = {
        "holds": all(each.holds for each in verdicts),
        "complete": all(each.complete for each in verdicts),
        "verdicts": [
            {
                "file": each.where,
                "kind": each.what,
                "holds": each.holds,
                "complete": each.complete,
                "why": each.text,
                **({"steps": each.steps} if each.steps else {}),
            }
            for each in verdicts
        ],
    }
    marks = [MARKS[each.holds if each.complete or allow_partial else None] for each in verdicts]
    lines = []
    for mark, each in zip(marks, verdicts, strict=True):
        lines.append(f"{mark} {each.where}: {each.what}: {each.text}")
        lines += [f"    {number}. {step}" for number, step in enumerate(each.steps, 1)]
    lines += [wrote] if wrote is not None else []
    answer = Answer(data, lines)
    wrong = [each for each in verdicts if each.holds is False]
    undecided = [each for each in verdicts if each.holds is None]
    partial = [each for each in verdicts if not each.complete and not allow_partial]
    if not wrong and not undecided and not partial:
        return answer
    out.print_answer(answer)
    if wrong:
        first = wrong[0]
        if first.why.startswith(first.where):
            raise CommandFailed(first.why, Exit.PROTOCOL)
        has_action = "; " in first.why
        raise CommandFailed(
            f"{first.where} does not verify: {first.why}",
            Exit.PROTOCOL,
            None
            if has_action
            else "do not rely on it; check that --trust names its hub, then fetch it again",
        )
    if undecided:
        raise CommandFailed(f"{undecided[0].where}: {undecided[0].why}", Exit.PROTOCOL)
    raise CommandFailed(
        f"{partial[0].where}: {partial[0].skipped}",
        Exit.PROTOCOL,
        "accept this with `veen verify --allow-partial`",
    )


def trust_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add --trust, --client and --witnesses, which the command gets as one ``TrustOptions``."""

    @wraps(work)
    def run(*args: Any, trust: str | None, client: str | None, witnesses: str | None, **options: Any) -> Any:
        is_named = click.get_current_context().get_parameter_source("client") is ParameterSource.COMMANDLINE
        against = TrustOptions(trust=trust, client=client, is_client_named=is_named, witnesses=witnesses)
        return work(*args, against=against, **options)

    with_client = click.option(
        "--client",
        envvar="VEEN_CLIENT",
        show_envvar=True,
        shell_complete=completions.folders,
        help="Folder of an identity: compare with what it has verified before.",
    )
    with_trust = click.option(
        "--trust", envvar="VEEN_TRUST", show_envvar=True, help="The hub's hub_id or first hub_pk, in hex."
    )
    return with_trust(with_client(witnesses_option(run)))


@command(
    "veen verify receipt.cbor hub-identity.cbor --trust HUB_ID",
    "veen verify receipt.cbor consistency.cbor --trust HUB_ID --client bob",
    "veen verify evidence/ --trust HUB_ID",
    "veen verify message.evidence --trust HUB_ID --witnesses policy.txt",
    "veen verify message.evidence --trust HUB_ID --page evidence.html",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE…", shell_complete=completions.files)
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="PAGE",
    callback=writable,
    help="Also write a page with the files inside, which verifies them in any browser.",
)
@click.option(
    "--allow-partial",
    is_flag=True,
    help="Exit with 0 although some checks were skipped: a file cannot be compared with --client, or an "
    f"export has more than {MAX_WRITERS:,} writers.",
)
@trust_options
def verify(
    out: Output, *, files: tuple[str, ...], page: Path | None, allow_partial: bool, against: TrustOptions
) -> Answer:
    """Verify evidence, exports, bundles, cards and tokens offline.

    Files are verified together: proofs against the receipts and checkpoints given, and receipts and
    checkpoints under the identity of the pinned hub. With --client, receipts, checkpoints and exports of a
    label are also compared with what that identity has verified before, and hub checkpoints with the one of
    the same size that it has accepted; a contradiction fails. An older
    or newer receipt can be compared if a consistency proof is given too. With --witnesses, hub
    checkpoints, hub evidence, bundles, query results and exports must also have the cosignatures of a
    quorum. With --page, the files travel inside a page that makes the same checks without VEEN or a
    network. Exits with 3 if a file does not verify, if evidence is missing, or if a check was skipped and
    --allow-partial is not given.
    """
    verdicts = verify_files(out, files, against)
    wrote = None
    if page is not None:
        pin = pinned_hub(against.trust)
        hub_id = pin.hex() if pin is not None else None
        wrote = write_page(page, files, hub_id, witness_policy_file(against.witnesses))
    return print_verdicts(out, verdicts, allow_partial=allow_partial, wrote=wrote)
