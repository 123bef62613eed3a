"""``veen agree``: propose versions of an agreement, decide about them, show the active one (spec-3 §5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.times import Moment, format_utc
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.operations.party import NameOrId, Party, PartyView, party_view, position_at, unknown
from veen_cli.overlays.fold import check_upto
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, refused, sent_data
from veen_core.hashing import H
from veen_core.ids import UnixTime
from veen_core.msg import operation_id
from veen_overlays.operations.agreement import (
    ACCEPT,
    AGREEMENTS,
    REJECT,
    WITHDRAW,
    AgreementConfirmation,
    AgreementDefinition,
    AgreementId,
    AgreementPolicy,
    TermsHash,
    Version,
    active_version,
    agreement_id,
    agreement_ids,
    versions_of,
)
from veen_overlays.operations.operation import IdentityId

_HERE: Final = "veen_cli.operations.agree"
COMMANDS: Final = {
    "propose": LazyCommand(f"{_HERE}:propose", "Propose a version of an agreement to its parties."),
    "accept": LazyCommand(f"{_HERE}:accept", "Accept a version."),
    "reject": LazyCommand(f"{_HERE}:reject", "Reject a version."),
    "withdraw": LazyCommand(f"{_HERE}:withdraw", "Withdraw your acceptance of a version."),
    "status": LazyCommand(f"{_HERE}:status", "Show which version is active, and every decision."),
}
agree = CommandGroup(
    "agree", COMMANDS, path="agree", help="Agreements: propose and confirm versions, see the active one."
)

SAID: Final = {ACCEPT: "accepted", REJECT: "rejected", WITHDRAW: "withdrew from"}
name_argument = click.argument("agreement", type=NameOrId(AgreementId, agreement_id), metavar="AGREEMENT")
TERMS_FILE: Final = click.Path(path_type=Path, exists=True, dir_okay=False)


@command(
    "veen agree propose lease lease-1.txt --party alice.pub --party bob.pub --stream contracts",
    "veen agree propose lease lease-1.txt --party alice.pub --party bob.pub --version 9 --expires +365d"
    " --stream contracts",
)
@name_argument
@click.argument("terms", type=TERMS_FILE, shell_complete=completions.files)
@click.option(
    "--party",
    "parties",
    multiple=True,
    required=True,
    type=Party(),
    help="Identity that has to confirm: folder, card or key in hex; may be repeated.",
)
@click.option("--version", type=Integer(0), help="Number of the version [default: the next one].")
@click.option("--effective", type=Moment(), help="When it takes effect [default: once it is confirmed].")
@click.option("--expires", type=Moment(future=True), help="When it ends: a time, or +365d.")
@stream_option
@access_options
def propose(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    agreement: AgreementId,
    terms: Path,
    parties: tuple[IdentityId, ...],
    version: int | None,
    effective: int | None,
    expires: int | None,
) -> Answer:
    """Propose a version of an agreement to its parties.

    AGREEMENT is a name that the parties share, or an id in hex. The record contains the hash of the file
    TERMS, not its text. Nothing is agreed until the parties accept.
    """
    del out

    async def work() -> Answer:
        async with party_view(access, stream, AGREEMENTS) as party:
            highest = max((each.definition.version for each in await _versions(party, agreement)), default=0)
            number = highest + 1 if version is None else version
            if number <= highest:
                why = f"version {highest} is defined already, and versions only rise (M2)"
                raise refused("AGREEMENT.M2", why)
            record = AgreementDefinition(
                agreement_id=agreement,
                version=number,
                terms_hash=TermsHash(H(terms.read_bytes())),
                parties=tuple(sorted(set(parties))),
                effective_time=None if effective is None else UnixTime(effective),
                expiry_time=None if expires is None else UnixTime(expires),
            )
            receipt = await party.send(record)
            data = {
                **sent_data(record, receipt, stream),
                "agreement_id": agreement.hex(),
                "version": number,
                "terms_hash": record.terms_hash.hex(),
                "parties": [each.hex() for each in record.parties],
            }
            lines = [f"proposed version {number} to {plural(len(record.parties), 'party', 'parties')}"]
            lines += [f"  agreement {agreement.hex()}", f"  terms {record.terms_hash.hex()}"]
            return Answer(data, lines)

    return loop.run(work())


async def _versions(party: PartyView, agreement: AgreementId) -> list[Version]:
    return versions_of(await party.state(), agreement)


def _decide(
    access: OverlayAccess,
    stream: str,
    agreement: AgreementId,
    *,
    version: int | None,
    word: str,
    terms: Path | None = None,
) -> Answer:
    """Send the acting identity's decision about a version that concerns it."""

    async def work() -> Answer:
        async with party_view(access, stream, AGREEMENTS, must_exist=True) as party:
            counting = [each for each in await _versions(party, agreement) if each.rises]
            if not counting:
                raise unknown(f"agreement {agreement.hex()}", stream, "veen agree status")
            number = counting[-1].definition.version if version is None else version
            chosen = next((each for each in counting if each.definition.version == number), None)
            if chosen is None:
                raise unknown(f"version {number} of agreement {agreement.hex()}", stream, "veen agree status")
            concerned = {each for defined in counting for each in defined.definition.parties}
            if party.identity not in concerned:
                raise refused("AGREEMENT.PARTY", f"{party.identity.hex()} is not a party of the agreement")
            if terms is not None and H(terms.read_bytes()) != chosen.definition.terms_hash:
                why = f"{terms} is not the text of version {number}: its hash differs"
                raise refused("AGREEMENT.TERMS", why)
            record = AgreementConfirmation(
                agreement_id=agreement,
                version=number,
                party_identity=party.identity,
                decision=word,
                decision_time=party.source.now,
                parent_operation_id=operation_id((await party.view.message(chosen.seq)).origin),
            )
            receipt = await party.send(record)
            data = {
                **sent_data(record, receipt, stream),
                "agreement_id": agreement.hex(),
                "version": number,
                "decision": word,
                "terms_hash": chosen.definition.terms_hash.hex(),
            }
            line = f"{SAID[word]} version {number} (message {receipt.stream_seq} of {stream})"
            return Answer(data, [line, f"  terms {chosen.definition.terms_hash.hex()}"])

    return loop.run(work())


version_option = click.option(
    "--version", type=Integer(0), help="Number of the version [default: the newest]."
)


@command("veen agree accept lease --terms lease-1.txt --stream contracts --client bob")
@name_argument
@version_option
@click.option(
    "--terms",
    type=TERMS_FILE,
    shell_complete=completions.files,
    help="Your copy of the text: nothing is sent if its hash is not the proposed one.",
)
@stream_option
@access_options
def accept(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    agreement: AgreementId,
    version: int | None,
    terms: Path | None,
) -> Answer:
    """Accept a version.

    Your latest decision about a version counts. Compare the text with --terms: what you accept is its hash.
    """
    del out
    return _decide(access, stream, agreement, version=version, word=ACCEPT, terms=terms)


@command("veen agree reject lease --stream contracts --client bob")
@name_argument
@version_option
@stream_option
@access_options
def reject(
    out: Output, *, access: OverlayAccess, stream: str, agreement: AgreementId, version: int | None
) -> Answer:
    """Reject a version."""
    del out
    return _decide(access, stream, agreement, version=version, word=REJECT)


@command("veen agree withdraw lease --version 1 --stream contracts --client bob")
@name_argument
@version_option
@stream_option
@access_options
def withdraw(
    out: Output, *, access: OverlayAccess, stream: str, agreement: AgreementId, version: int | None
) -> Answer:
    """Withdraw your acceptance of a version."""
    del out
    return _decide(access, stream, agreement, version=version, word=WITHDRAW)


@command(
    "veen agree status --stream contracts",
    "veen agree status lease --policy majority --stream contracts",
    "veen agree status lease --upto 2 --stream contracts --json",
    "veen agree status lease --at +30d --stream contracts",
)
@click.argument("agreement", type=NameOrId(AgreementId, agreement_id), metavar="[AGREEMENT]", required=False)
@click.option(
    "--policy",
    type=click.Choice([each.value for each in AgreementPolicy]),
    default=AgreementPolicy.ALL.value,
    show_default=True,
    help="How many of the parties must accept.",
)
@click.option("--upto", type=Integer(1), help="Answer as of message N of the stream [default: the last].")
@click.option("--at", type=Moment(), help="Answer as of this time: a time, or +30d for a later one.")
@stream_option
@access_options
def status(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    agreement: AgreementId | None,
    policy: str,
    upto: int | None,
    at: int | None,
) -> Answer:
    """Show which version is active, and every decision.

    --upto answers as of a message, at the time of its receipt. --at answers as of a time: messages with a
    later receipt do not count. A version supersedes an older one when enough parties of both have accepted
    it.
    """
    del out
    if upto is not None and at is not None:
        raise click.UsageError("give --upto or --at, not both.")

    async def work() -> Answer:
        async with party_view(access, stream, AGREEMENTS, must_exist=True) as party:
            check_upto(upto, party.view.size, stream)
            reached = upto if at is None else await position_at(party.view, at)
            if reached == 0:
                raise CommandFailed(
                    f"stream {stream} has no message from before {format_utc(at or 0)}",
                    Exit.USAGE,
                    "choose a later --at",
                )
            folded = await party.view.state(reached)
            assert folded.receipt is not None
            now = at or (folded.receipt.hub_ts if upto is not None else party.source.now)
            state = folded.summary.inner
            chosen = agreement_ids(state) if agreement is None else [agreement]
            shown = [_agreement_data(each, versions_of(state, each), now, policy) for each in chosen]
            if agreement is not None and not shown[0]["versions"]:
                raise unknown(f"agreement {agreement.hex()}", stream, "veen agree status")
            data = {"stream": stream, "upto_seq": folded.range.to_seq, "at": now, "policy": policy}
            lines = [line for each in shown for line in _lines(each)]
            return Answer({**data, "agreements": shown}, lines or [f"{stream} has no agreement"])

    return loop.run(work())


def _agreement_data(agreement: AgreementId, versions: list[Version], at: int, policy: str) -> dict[str, Any]:
    active = active_version(versions, at, AgreementPolicy(policy))
    return {
        "agreement_id": agreement.hex(),
        "active_version": None if active is None else active.definition.version,
        "versions": [_version_data(each, is_active=each is active) for each in versions],
    }


def _version_data(version: Version, *, is_active: bool) -> dict[str, Any]:
    defined = version.definition
    decisions = version.decisions
    return {
        "version": defined.version,
        "active": is_active,
        "counts": version.rises,
        "stream_seq": version.seq,
        "defined": version.defined,
        "terms_hash": defined.terms_hash.hex(),
        "effective_time": defined.effective_time,
        "expiry_time": defined.expiry_time,
        "parties": [
            {
                "party": party.hex(),
                "decision": decisions[party].word if party in decisions else None,
                "stream_seq": decisions[party].seq if party in decisions else None,
            }
            for party in defined.parties
        ],
    }


def _lines(agreement: dict[str, Any]) -> list[str]:
    number = agreement["active_version"]
    said = "no version is active" if number is None else f"version {number} is active"
    lines = [f"agreement {agreement['agreement_id']}: {said}"]
    for each in agreement["versions"]:
        when = [f"message {each['stream_seq']}", f"terms {each['terms_hash'][:16]}…"]
        if each["effective_time"] is not None:
            when.append(f"from {times.format_utc(each['effective_time'])}")
        if each["expiry_time"] is not None:
            when.append(f"until {times.format_utc(each['expiry_time'])}")
        if each["defined"] > 1:
            when.append(f"defined {each['defined']} times, the first counts (M2)")
        if not each["counts"]:
            when.append("does not count: a higher version was defined before (M2)")
        mark = " (active)" if each["active"] else ""
        lines.append(f"  version {each['version']}{mark}: {', '.join(when)}")
        lines += [f"    {party['decision'] or 'undecided':<9} {party['party']}" for party in each["parties"]]
    return lines
