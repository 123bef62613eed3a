"""``veen grant``: access grants, their revocation, and the rules of a domain (spec-3 §3).

Grants live in a stream: the access stream of a realm, which hubs of level access follow, or any stream
whose payments and delegated executions they cover.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.identifiers import Hex
from veen_cli.arguments.numbers import Integer
from veen_cli.arguments.object_files import write_new
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.output import Answer, Output
from veen_cli.identity.identity_folder import verify_key_named
from veen_cli.operations.published import Published, publish
from veen_cli.overlays.arguments import Realm, realm_option
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options
from veen_core.cap import CapToken
from veen_core.ids import AuthRef, StreamId, UnixTime
from veen_core.stream import stream_id
from veen_overlays.fold.overlay import Overlay
from veen_overlays.identifiers import RealmId
from veen_overlays.operations.access import AccessGrant, AccessRevoke, access_stream
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.overlays import GRANTS
from veen_overlays.operations.payment import Domain
from veen_overlays.schema.record import Record

_HERE: Final = "veen_cli.operations.grant"
COMMANDS: Final = {
    "issue": LazyCommand(
        f"{_HERE}:issue", "Allow an identity to write to streams for a time, and to spend up to an amount."
    ),
    "revoke": LazyCommand(
        f"{_HERE}:revoke", "Revoke every grant that an identity has so far, or one of them."
    ),
    "list": LazyCommand(f"{_HERE}:list_", "List the grants of a stream in their order."),
    "stream": LazyCommand(
        f"{_HERE}:stream", "Print the id of a realm's access stream, whose writers need a token of the hub."
    ),
    "domain": LazyCommand(f"{_HERE}:domain", "Set the rules of a stream's operations."),
}
grant = CommandGroup(
    "grant", COMMANDS, path="grant", help="Access grants in a log, and the rules of a domain."
)


def log_options(work: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--log`` and ``--realm``: the stream that holds the grants; the command gets its ``log``."""

    @wraps(work)
    def run(*args: Any, log: str | None, realm: RealmId | None, **options: Any) -> Any:
        if (log is None) == (realm is None):
            raise click.UsageError("name the stream of the grants: either --log STREAM or --realm REALM")
        stream = access_stream(realm) if realm is not None else stream_id(log or "")
        return work(*args, log=stream, **options)

    found: Callable[..., Any] = run
    for option in (
        click.option("--realm", type=Realm(), help="The access stream of this realm."),
        click.option("--log", metavar="STREAM", help="The stream that holds the grants."),
    ):
        found = option(found)
    return found


def _publish(access: OverlayAccess, stream: StreamId, make: Callable[[UnixTime], Record]) -> Published:
    async def work() -> Published:
        async with access.at(stream) as source:
            return await publish(source, make(source.now))

    return loop.run(work())


@command(
    "veen grant issue bob --stream orders --for 30d --realm shop --reader realm --out bob.cap",
    "veen grant issue bob --stream till --for 1h --max-amount 500 --currency EUR --log till",
)
@click.argument("subject")
@click.option(
    "--stream", "streams", multiple=True, required=True, help="Stream that the subject may write to."
)
@click.option("--for", "duration", required=True, type=times.Duration(1), help="How long the grant is valid.")
@click.option("--rate", type=Integer(1), help="Messages per second and label.")
@click.option("--burst", type=Integer(1), help="Messages at once [default: the rate].")
@click.option("--max-amount", type=Integer(0), help="Total that the subject may spend by paid operations.")
@click.option("--currency", help="Unit of --max-amount [default: any].")
@click.option("--label", help="Name of the subject, for people.")
@click.option("--reason", help="Reason, as text.")
@click.option(
    "--out",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    shell_complete=completions.files,
    help="Write the grant's token to this file, for the subject's `veen cap authorize`.",
)
@log_options
@access_options
def issue(
    out: Output,
    *,
    access: OverlayAccess,
    log: StreamId,
    subject: str,
    streams: tuple[str, ...],
    duration: int,
    rate: int | None,
    burst: int | None,
    max_amount: int | None,
    currency: str | None,
    label: str | None,
    reason: str | None,
    file: Path | None,
) -> Answer:
    """Allow an identity to write to streams for a time, and to spend up to an amount.

    SUBJECT is an identity's folder or card, an Ed25519 key in hex, or an account id. The grant counts only if
    its issuer is an authority: of the hub for its access stream, of the domain (`veen grant domain`)
    for payments. In a delegation chain, the subject of each grant issues the next one.
    """
    if burst is not None and rate is None:
        raise click.UsageError("--burst needs --rate")

    def make(now: UnixTime) -> Record:
        return AccessGrant(
            subject_identity=IdentityId(verify_key_named(subject)),
            subject_label=label,
            allowed_stream_ids=tuple(sorted({stream_id(each) for each in streams})),
            expiry_time=UnixTime(now + duration),
            maximum_rate_per_second=rate,
            maximum_burst=burst,
            maximum_amount=max_amount,
            currency_code=currency,
            reason=reason,
        )

    done = _publish(access, log, make)
    token = _token_of(done)
    if file is not None:
        write_new(file, token.encode())
    record = done.record
    assert isinstance(record, AccessGrant)
    if out.quiet and not out.as_json:
        click.echo(token.auth_ref.hex())
    data = {
        **done.data(log),
        "auth_ref": token.auth_ref.hex(),
        "issuer": token.issuer_pk.hex(),
        "subject": record.subject_identity.hex(),
        "expires_at": record.expiry_time,
        "file": None if file is None else str(file),
    }
    lines = [f"granted until {times.format_utc(record.expiry_time)}", f"  auth_ref {token.auth_ref.hex()}"]
    return Answer(data, [*lines, f"wrote {file}"] if file is not None else lines)


def _token_of(done: Published) -> CapToken:
    record = done.record
    assert isinstance(record, AccessGrant)
    held = done.state.grants[bytes(record.subject_identity)]
    return next(each.token for each in held if each.seq == done.outcome.seq)


@command(
    "veen grant revoke bob --realm shop --reader realm",
    "veen grant revoke bob --grant AUTH_REF --log till",
)
@click.argument("subject")
@click.option("--grant", "auth_ref", type=Hex(AuthRef), metavar="AUTH_REF", help="Revoke only this grant.")
@click.option("--reason", help="Reason, as text.")
@log_options
@access_options
def revoke(
    out: Output,
    *,
    access: OverlayAccess,
    log: StreamId,
    subject: str,
    auth_ref: AuthRef | None,
    reason: str | None,
) -> Answer:
    """Revoke every grant that an identity has so far, or one of them.

    The revocation counts for the issuer's own grants, and for all grants if the issuer is an authority. A
    later grant is not affected.
    """
    del out

    def make(_now: UnixTime) -> Record:
        return AccessRevoke(
            subject_identity=IdentityId(verify_key_named(subject)),
            target_capability_reference=auth_ref,
            reason=reason,
        )

    done = _publish(access, log, make)
    record = done.record
    assert isinstance(record, AccessRevoke)
    what = "all grants" if auth_ref is None else f"grant {auth_ref.hex()}"
    held = done.state.grants.get(bytes(record.subject_identity), ())
    known = any(auth_ref in (None, each.auth_ref) for each in held)
    lines = [f"revoked {what} (message {done.receipt.stream_seq})"]
    if not known:
        lines.append(f"  the stream has no such grant for {record.subject_identity.hex()}: check SUBJECT")
    return Answer({**done.data(log), "known": known}, lines)


@command("veen grant list --log till", name="list")
@log_options
@access_options
def list_(out: Output, *, access: OverlayAccess, log: StreamId) -> Answer:
    """List the grants of a stream in their order."""
    del out

    async def work() -> list[dict[str, Any]]:
        async with access.at(log) as source, source.view(GRANTS, must_exist=True) as view:
            return rows_of(GRANTS, (await view.state()).summary)

    rows = loop.run(work())
    lines = [line for row in rows for line in _grant_lines(row)]
    return Answer({"grants": rows}, lines or ["no grants"])


def rows_of(overlay: Overlay[Any], summary: Any) -> list[dict[str, Any]]:
    """The rows of a state as JSON."""
    rows: list[dict[str, Any]] = overlay.view_json(summary)
    return rows


def _grant_lines(row: dict[str, Any]) -> list[str]:
    end = f"until {times.format_utc(row['expiry_time'])}"
    if row["revoked_at"] is not None:
        end = f"revoked by message {row['revoked_at']}"
    spent = f", spent {row['spent']} of {row['maximum_amount']}" if "maximum_amount" in row else ""
    return [
        f"{row['auth_ref']}  {end}{spent}",
        f"  subject {row['subject_identity']}",
        f"  issuer  {row['issuer']}{' (authority)' if row['authority'] else ''}",
    ]


@command("veen grant stream --realm shop")
@realm_option
def stream(out: Output, *, realm: RealmId) -> Answer:
    """Print the id of a realm's access stream, whose writers need a token of the hub."""
    found = access_stream(realm).hex()
    if out.quiet and not out.as_json:
        click.echo(found)
    return Answer({"stream": found}, [found])


@command("veen grant domain --authority admin --require-grants --currency EUR --log till")
@click.option(
    "--authority",
    "authorities",
    multiple=True,
    required=True,
    help="Identity whose grants and revocations count.",
)
@click.option("--allow-overdraft", is_flag=True, help="Let payments make a balance negative.")
@click.option("--require-grants", is_flag=True, help="Refuse payments that no grant covers.")
@click.option("--currency", help="Unit of payments that name none.")
@log_options
@access_options
def domain(
    out: Output,
    *,
    access: OverlayAccess,
    log: StreamId,
    authorities: tuple[str, ...],
    allow_overdraft: bool,
    require_grants: bool,
    currency: str | None,
) -> Answer:
    """Set the rules of a stream's operations.

    The first such record of a stream counts, whichever client has sent it. Later only an authority that it
    names can change the rules. A stream without rules has no authority, allows no overdraft and requires no
    grants.
    """
    del out

    def make(_now: UnixTime) -> Record:
        return Domain(
            authorities=tuple(sorted({IdentityId(verify_key_named(each)) for each in authorities})),
            negative_balances=allow_overdraft,
            grants_required=require_grants,
            currency_code=currency,
        )

    done = _publish(access, log, make)
    return Answer(done.data(log), [f"set the rules (message {done.receipt.stream_seq})"])
