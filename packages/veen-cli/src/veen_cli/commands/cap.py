"""``veen cap``: tokens that let somebody write to a stream of a gated hub (§6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.numbers import parse_unsigned
from veen_cli.arguments.object_files import read_object, write_new
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import Group, LazyCommand
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.identity.identity_folder import Folder, verify_key_named
from veen_core.cap import CapToken, Rate, mint, verify_token
from veen_core.errors import DecodeError
from veen_core.ids import AuthRef, ClientId
from veen_core.limits import DEFAULT_LIMITS
from veen_core.stream import stream_id
from veen_hub.client import NotFound

COMMANDS: Final = {
    "issue": LazyCommand(
        "veen_cli.commands.cap:issue", "Sign a token that lets an identity write to streams."
    ),
    "authorize": LazyCommand(
        "veen_cli.commands.cap:authorize", "Hand a token to the hub; messages use it from then on."
    ),
    "inspect": LazyCommand(
        "veen_cli.commands.cap:inspect", "Show what a token allows, and whether its signatures hold."
    ),
    "status": LazyCommand("veen_cli.commands.cap:status", "Ask what the hub knows of a token."),
}
cap = Group(
    "cap", COMMANDS, path="cap", help="Tokens: who may write to which stream, for how long, how fast."
)

token_argument = click.argument(
    "token", type=click.Path(path_type=Path, exists=True, dir_okay=False), metavar="TOKEN"
)


class RateType(click.ParamType[Rate]):
    """``PER_SEC,BURST``."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        if isinstance(value, Rate):
            return value
        per_sec, _, burst = str(value).partition(",")
        if not (per_sec.isdecimal() and burst.isdecimal()):
            self.fail(f"{value!r} is no rate: write PER_SECOND,BURST as in 100,200", param, ctx)
        fastest, largest = DEFAULT_LIMITS.max_cap_rate_per_sec, DEFAULT_LIMITS.max_cap_rate_burst
        each, together = parse_unsigned(per_sec), parse_unsigned(burst)
        if each is None or together is None or each > fastest or together > largest:
            self.fail(f"{value!r} is more than any hub allows: at most {fastest},{largest}", param, ctx)
        if not together:
            self.fail(f"{value!r} lets nobody write: a burst of at least 1, as in 100,200", param, ctx)
        return Rate(per_sec=each, burst=together)


def told(token: CapToken) -> dict[str, Any]:
    rate = token.allow.rate
    return {
        "auth_ref": token.auth_ref.hex(),
        "issuer_pk": token.issuer_pk.hex(),
        "subject_pk": token.subject_pk.hex(),
        "stream_ids": [each.hex() for each in token.allow.stream_ids],
        "ttl": token.allow.ttl,
        "rate": {"per_sec": rate.per_sec, "burst": rate.burst} if rate is not None else None,
    }


def lines(token: CapToken, names: dict[str, str] | None = None) -> list[str]:
    rate, names = token.allow.rate, names or {}
    return fields(
        {
            "issuer": token.issuer_pk.hex(),
            "subject": token.subject_pk.hex(),
            **{
                f"stream {n}": f"{each.hex()}{names.get(each.hex(), '')}"
                for n, each in enumerate(token.allow.stream_ids, 1)
            },
            "valid for": f"{token.allow.ttl} s after the hub has it",
            "rate": f"{rate.per_sec} a second, bursts of {rate.burst}" if rate is not None else "not limited",
            "auth_ref": token.auth_ref.hex(),
        }
    )


@command(
    "veen cap issue --issuer admin --subject alice --stream orders --ttl 12h --out alice.cap",
    "veen cap issue --issuer admin --subject alice.pub --stream core/quota --rate 100,100 --out quota.cap",
)
@click.option(
    "--issuer",
    required=True,
    type=click.Path(path_type=Path),
    help="Folder of the identity that signs: the hub's admin, or an issuer in its hub.yaml.",
)
@click.option(
    "--subject",
    required=True,
    shell_complete=completions.files,
    help="Who may write: an identity's folder, card, or a client_id in hex.",
)
@click.option("--stream", "-s", "streams", multiple=True, required=True, help="Name or id; may be repeated.")
@click.option(
    "--ttl",
    type=times.Duration(1),
    default="1d",
    show_default=True,
    help="How long it holds once the hub has it.",
)
@click.option("--rate", type=RateType(), help="PER_SECOND,BURST [default: not limited].")
@click.option(
    "--out", "target", type=click.Path(path_type=Path), required=True, help="File to write the token to."
)
@passphrase_option
def issue(
    out: Output,
    *,
    issuer: Path,
    subject: str,
    streams: tuple[str, ...],
    ttl: int,
    rate: Rate | None,
    target: Path,
    passphrase_file: Path | None,
) -> Answer:
    """Sign a token that lets an identity write to streams.

    Give the file to the subject: it is authorized by `veen cap authorize`, or named with `veen send --cap`.
    """
    del out
    if not all(streams):
        raise click.UsageError("--stream is empty: a variable of your shell that is not set?")
    subject_pk = ClientId(verify_key_named(subject))
    key = Folder(issuer).unlock(Passphrase(passphrase_file)).signing_key
    names = {stream_id(name).hex(): f" ({name})" for name in streams}
    token = mint(key, subject_pk, [stream_id(name) for name in streams], ttl, rate)
    verify_token(token)
    write_new(target, token.encode())
    return Answer({**told(token), "file": str(target)}, [f"wrote {target}", *lines(token, names)])


@command("veen cap authorize alice.cap --client alice")
@token_argument
@connects
def authorize(out: Output, *, target: Target, token: Path) -> Answer:
    """Hand a token to the hub; messages use it from then on.

    Its time runs from the receipt that comes back. Doing it again changes nothing, and never renews it.
    """
    del out
    made = read_object(CapToken, token)

    async def work() -> Any:
        async with target.connect() as hub:
            receipt = await hub.authorize(made)
            return receipt, await hub.cap_status(made.auth_ref)

    receipt, status = loop.run(work())
    expires = status.expires_at
    data = {
        **told(made),
        "issued_at": receipt.hub_ts,
        "expires_at": expires,
        "receipt": receipt.encode().hex(),
    }
    until = f", holds until {times.format_utc(expires)}" if expires is not None else ""
    return Answer(
        data,
        [f"authorized at {times.format_utc(receipt.hub_ts)}{until}", f"  auth_ref {made.auth_ref.hex()}"],
    )


@command("veen cap inspect alice.cap", name="inspect")
@token_argument
def inspect(out: Output, *, token: Path) -> Answer:
    """Show what a token allows, and whether its signatures hold.

    Whether a hub accepts the issuer, only the hub can tell: `veen cap status`.
    """
    del out
    made = read_object(CapToken, token)
    verify_token(made)
    return Answer(
        {**told(made), "signatures": len(made.sig_chain), "holds": True},
        [*lines(made), f"its {len(made.sig_chain)} signature(s) by the issuer hold"],
    )


def _auth_ref(text: str) -> AuthRef:
    path = Path(text)
    if path.exists():
        return read_object(CapToken, path).auth_ref
    try:
        return AuthRef.from_hex(text)
    except DecodeError:
        raise CommandFailed(
            f"{text}: neither a token's file nor an auth_ref in hex; `veen cap inspect` shows a token's",
            Exit.USAGE,
        ) from None


@command("veen cap status alice.cap", "veen cap status AUTH_REF --json")
@click.argument("token", metavar="TOKEN|AUTH_REF", shell_complete=completions.files)
@connects
def status(out: Output, *, target: Target, token: str) -> Answer:
    """Ask what the hub knows of a token.

    Exits with 4 if it knows nothing of it.
    """
    del out
    auth_ref = _auth_ref(token)

    async def work() -> Any:
        async with target.connect(anonymous=True) as hub:
            try:
                return await hub.cap_status(auth_ref), hub.connection.time.now()
            except NotFound:
                raise CommandFailed(
                    f"the hub has never seen token {auth_ref.hex()}: hand it over with `veen cap authorize`",
                    Exit.REFUSED,
                ) from None

    found, now = loop.run(work())
    expired = found.expires_at is not None and found.expires_at < now
    expires = (
        times.format_utc(found.expires_at) + (" (EXPIRED)" if expired else "") if found.expires_at else None
    )
    return Answer(
        {**json.loads(found.to_json()), "expired": expired},
        fields(
            {
                "auth_ref": found.auth_ref.hex(),
                "authorized": times.format_utc(found.issued_at),
                "holds until": expires,
                "issuer": found.issuer_pk.hex() if found.issuer_pk else None,
                "subject": found.subject_pk.hex() if found.subject_pk else None,
            }
        ),
    )
