"""``veen recover``: replace an identity whose key is lost, by its guardians, in the log (spec-3 §8)."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import click

from veen_cli.arguments.numbers import Integer
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.operations.party import Party, PartyView, party_view
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, refused, sent_data
from veen_core.msg import operation_id
from veen_core.receipt import Receipt
from veen_overlays.fold.overlay import in_json
from veen_overlays.identifiers import PrincipalPk, principal_stream
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.recovery import RECOVERIES, OpenRecovery, Recoveries, RecoveryEvent, recoveries
from veen_overlays.operations.recovery_records import (
    APPROVE,
    REJECT,
    RecoveryApproval,
    RecoveryExecution,
    RecoveryPolicy,
    RecoveryRequest,
)
from veen_overlays.schema.record import Record

_HERE: Final = "veen_cli.operations.recover"
COMMANDS: Final = {
    "policy": LazyCommand(f"{_HERE}:policy", "Name your guardians, while you have your key."),
    "request": LazyCommand(f"{_HERE}:request", "Ask that a new identity replace a lost one."),
    "approve": LazyCommand(f"{_HERE}:approve", "Approve a request, as a guardian."),
    "reject": LazyCommand(f"{_HERE}:reject", "Reject a request, as a guardian."),
    "execute": LazyCommand(f"{_HERE}:execute", "Replace the identity, once enough guardians have approved."),
    "status": LazyCommand(f"{_HERE}:status", "Show policies, open requests and replaced identities."),
}
recover = CommandGroup(
    "recover", COMMANDS, path="recover", help="Recovery: guardians replace an identity whose key is lost."
)

SAID: Final = {APPROVE: "approved", REJECT: "rejected"}
lost_argument = click.argument("lost", type=Party(), metavar="TARGET")
new_option = click.option(
    "--new", required=True, type=Party(), help="The new identity: folder, card or key in hex."
)
stream_option = click.option(
    "--stream", "-s", help="Stream of the recovery, name or id in hex [default: the target's own stream]."
)
reason_option = click.option("--reason", help="Reason, as text.")


@command("veen recover policy --guardian alice.pub --guardian phone.pub --threshold 2 --client bob")
@click.option(
    "--guardian",
    "guardians",
    multiple=True,
    required=True,
    type=Party(),
    help="Identity that may approve your recovery: folder, card or key in hex; may be repeated.",
)
@click.option("--threshold", type=Integer(1), required=True, help="How many guardians have to approve.")
@click.option(
    "--executor",
    "executors",
    multiple=True,
    type=Party(),
    help="Identity that may execute your recovery; may be repeated [default: every writer of the stream].",
)
@stream_option
@access_options
def policy(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str | None,
    guardians: tuple[IdentityId, ...],
    threshold: int,
    executors: tuple[IdentityId, ...],
) -> Answer:
    """Name your guardians, while you have your key.

    A later policy replaces this one, but not for a recovery that is requested already.
    """
    del out

    async def work() -> Answer:
        home = _home(stream, IdentityId(access.identity.client_id))
        async with party_view(access, home, RECOVERIES) as party:
            record = RecoveryPolicy(
                target_identity=party.identity,
                guardians=tuple(sorted(set(guardians))),
                threshold=threshold,
                executors=tuple(sorted(set(executors))) or None,
                updated_at=party.source.now,
            )
            if (broken := record.broken_rule()) is not None:
                raise click.UsageError(f"the policy breaks a rule: {broken}.")
            receipt = await party.send(record)
            data = {**sent_data(record, receipt, home), "policy_group_id": record.group_id.hex()}
            of_all = f"{threshold} of {plural(len(record.guardians), 'guardian')}"
            said = f"{of_all} can replace {party.identity.hex()}"
            return Answer(data, [said, f"  policy {record.group_id.hex()}"])

    return loop.run(work())


def _home(stream: str | None, lost: IdentityId) -> str:
    """The stream of a recovery: the one that is named, or the target's own (ID 4.1)."""
    return stream or principal_stream(PrincipalPk(lost)).hex()


def _described(stream: str | None, lost: IdentityId) -> str:
    """The stream of a recovery, for errors."""
    return f"stream {stream}" if stream is not None else f"recovery policy of {lost.hex()}"


def _recovery_view(
    access: OverlayAccess, stream: str | None, lost: IdentityId
) -> AbstractAsyncContextManager[PartyView]:
    home = _home(stream, lost)
    return party_view(access, home, RECOVERIES, must_exist=True, described=_described(stream, lost))


async def _found(party: PartyView) -> Recoveries:
    return recoveries(await party.state())


def _open(found: Recoveries, lost: IdentityId, new: IdentityId) -> OpenRecovery:
    if (one := found.open.get((lost, new))) is None:
        raise refused("RECOVERY.8.3", f"no request to replace {lost.hex()} by {new.hex()} is in the stream")
    return one


@command("veen recover request bob.pub --new new-bob.pub --reason 'lost phone' --client phone")
@lost_argument
@new_option
@reason_option
@stream_option
@access_options
def request(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str | None,
    lost: IdentityId,
    new: IdentityId,
    reason: str | None,
) -> Answer:
    """Ask that a new identity replace a lost one.

    TARGET is the lost identity: its folder, its card or its key in hex. It must have named its guardians.
    """
    del out

    async def work() -> Answer:
        home = _home(stream, lost)
        async with _recovery_view(access, stream, lost) as party:
            found = await _found(party)
            if lost in found.replaced:
                raise refused("RECOVERY.8.3", f"{lost.hex()} was replaced by {found.current(lost).hex()}")
            if lost not in found.policies:
                raise refused("RECOVERY.8.3", f"{lost.hex()} has named no guardians in stream {home}")
            record = RecoveryRequest(
                target_identity=lost,
                requested_new_identity=new,
                reason=reason,
                request_time=party.source.now,
            )
            receipt = await party.send(record)
            needed = plural(found.policies[lost].threshold, "guardian")
            line = f"requested: {needed} must approve that {new.hex()} replace {lost.hex()}"
            return _answer(record, receipt, home, [line])

    return loop.run(work())


def _answer(record: Record, receipt: Receipt, stream: str, lines: list[str]) -> Answer:
    operation = operation_id(receipt.leaf_hash).hex()
    data = {**sent_data(record, receipt, stream), "operation_id": operation}
    return Answer(data, [*lines, f"  operation {operation}"])


def _decide(
    access: OverlayAccess, stream: str | None, lost: IdentityId, new: IdentityId, word: str
) -> Answer:
    async def work() -> Answer:
        home = _home(stream, lost)
        async with _recovery_view(access, stream, lost) as party:
            found = await _found(party)
            one = _open(found, lost, new)
            if party.identity not in {found.current(each) for each in one.policy.guardians}:
                raise refused("RECOVERY.8.3", f"{party.identity.hex()} is not a guardian of {lost.hex()}")
            record = RecoveryApproval(
                target_identity=lost,
                requested_new_identity=new,
                approver_identity=party.identity,
                policy_group_id=one.policy.group_id,
                decision=word,
                decision_time=party.source.now,
                parent_operation_id=one.requested.operation_id,
            )
            receipt = await party.send(record)
            after = (await _found(party)).open.get((lost, new), one)
            line = f"{SAID[word]}: {len(after.approvals)} of {one.policy.threshold} approvals count"
            return _answer(record, receipt, home, [line])

    return loop.run(work())


@command("veen recover approve bob.pub --new new-bob.pub")
@lost_argument
@new_option
@stream_option
@access_options
def approve(
    out: Output, *, access: OverlayAccess, stream: str | None, lost: IdentityId, new: IdentityId
) -> Answer:
    """Approve a request, as a guardian.

    Make sure by other means that the new key belongs to the person whose key was lost.
    """
    del out
    return _decide(access, stream, lost, new, APPROVE)


@command("veen recover reject bob.pub --new new-bob.pub --client phone")
@lost_argument
@new_option
@stream_option
@access_options
def reject(
    out: Output, *, access: OverlayAccess, stream: str | None, lost: IdentityId, new: IdentityId
) -> Answer:
    """Reject a request, as a guardian.

    This replaces your earlier approval.
    """
    del out
    return _decide(access, stream, lost, new, REJECT)


@command("veen recover execute bob.pub --new new-bob.pub")
@lost_argument
@new_option
@stream_option
@access_options
def execute(
    out: Output, *, access: OverlayAccess, stream: str | None, lost: IdentityId, new: IdentityId
) -> Answer:
    """Replace the identity, once enough guardians have approved.

    The record names the approvals. Every reader checks them, and ignores an execution that breaks a rule.
    """
    del out

    async def work() -> Answer:
        home = _home(stream, lost)
        async with _recovery_view(access, stream, lost) as party:
            one = _open(await _found(party), lost, new)
            if not one.is_approved:
                why = f"{len(one.approvals)} of {one.policy.threshold} guardians have approved"
                raise refused("RECOVERY.8.3", why)
            record = RecoveryExecution(
                target_identity=lost,
                new_identity=new,
                applied_time=party.source.now,
                approval_references=tuple(each.operation_id for each in one.approvals),
            )
            signer = await party.link()
            found = await _found(party)
            step = RecoveryEvent(
                party.view.size + 1, operation_id(bytes(32)), signer, type(record), record.encode()
            )
            if (why_not := found.refusal(step, step.fields)) is not None:
                raise refused(f"RECOVERY.{why_not.partition(':')[0]}", why_not.partition(": ")[2])
            receipt = await party.source.send(record)
            await party.view.catch_up()
            after = (await _found(party)).current(lost)
            return _answer(record, receipt, home, [f"{lost.hex()} is replaced by {after.hex()}"])

    return loop.run(work())


@command("veen recover status ", "veen recover status bob.pub --json")
@click.argument("lost", type=Party(), metavar="[TARGET]", required=False)
@stream_option
@access_options
def status(out: Output, *, access: OverlayAccess, stream: str | None, lost: IdentityId | None) -> Answer:
    """Show policies, open requests and replaced identities."""
    del out
    if stream is None and lost is None:
        raise click.UsageError("name a TARGET or a --stream.")
    home = stream if lost is None or stream is not None else _home(None, lost)
    assert home is not None
    described = f"stream {home}" if lost is None else _described(stream, lost)
    state = access.state(home, RECOVERIES, described)
    shown: dict[str, Any] = in_json(RECOVERIES.view(state))
    if lost is not None:
        wanted = lost.hex()
        shown = {
            name: [each for each in shown[name] if each["target_identity"] == wanted]
            for name in ("policies", "open", "executions")
        } | {"replaced": {old: new for old, new in shown["replaced"].items() if old == wanted}}
    lines = [
        f"policy   {each['target_identity']}: {each['threshold']} of {len(each['guardians'])} guardians"
        for each in shown["policies"]
    ]
    for each in shown["open"]:
        lines.append(f"open     {each['target_identity']} to {each['requested_new_identity']}")
        lines.append(f"           {len(each['approvals'])} of {each['threshold']} approvals")
    for each in shown["executions"]:
        if "refused" in each:
            lines.append(f"refused  message {each['seq']}: {each['refused']}")
    lines += [f"replaced {old} by {new}" for old, new in shown["replaced"].items()]
    return Answer({"stream": home, **shown}, lines or [f"{home} has no recovery"])
