"""``veen cap``: capability tokens, which let an identity write to streams of a gated hub (core §6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.numbers import parse_unsigned
from veen_cli.arguments.object_files import read_object, write_new
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import Target, connects
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.identity.hub_records import CheckedStateStore, hub_folders
from veen_cli.identity.identity_folder import Folder, verify_key_named
from veen_cli.identity.known_streams import known_streams
from veen_core.cap import CapToken, Rate, mint, verify_token
from veen_core.errors import DecodeError
from veen_core.ids import AuthRef, ClientId
from veen_core.limits import DEFAULT_LIMITS
from veen_core.stream import stream_id
from veen_hub.client import Hub, NotFound
from veen_hub.client.state.records import HeldTokens
from veen_hub.client.tokens import TOKENS_RECORD

COMMANDS: Final = {
    "issue": LazyCommand(
        "veen_cli.commands.cap:issue", "Sign a token that lets an identity write to streams."
    ),
    "authorize": LazyCommand(
        "veen_cli.commands.cap:authorize", "Give a token to the hub; messages use it from then on."
    ),
    "list": LazyCommand("veen_cli.commands.cap:list_", "List the tokens that an identity holds."),
    "inspect": LazyCommand(
        "veen_cli.commands.cap:inspect", "Show what a token allows, and verify its signatures."
    ),
    "status": LazyCommand("veen_cli.commands.cap:status", "Ask the hub about a token."),
}
cap = CommandGroup(
    "cap", COMMANDS, path="cap", help="Tokens: who may write to which stream, how long and how fast."
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
            self.fail(f"{value!r} is not a rate PER_SECOND,BURST such as 100,200", param, ctx)
        fastest, largest = DEFAULT_LIMITS.max_cap_rate_per_sec, DEFAULT_LIMITS.max_cap_rate_burst
        each, together = parse_unsigned(per_sec), parse_unsigned(burst)
        if each is None or together is None or each > fastest or together > largest:
            self.fail(f"{value!r} is above the maximum of {fastest},{largest}", param, ctx)
        if not together:
            self.fail(f"{value!r} allows no message: the burst must be at least 1, as in 100,200", param, ctx)
        return Rate(per_sec=each, burst=together)


def token_dict(token: CapToken) -> dict[str, Any]:
    rate = token.allow.rate
    return {
        "auth_ref": token.auth_ref.hex(),
        "issuer_pk": token.issuer_pk.hex(),
        "subject_pk": token.subject_pk.hex(),
        "stream_ids": [each.hex() for each in token.allow.stream_ids],
        "ttl": token.allow.ttl,
        "rate": {"per_sec": rate.per_sec, "burst": rate.burst} if rate is not None else None,
    }


def token_lines(token: CapToken, names: dict[str, str] | None = None) -> list[str]:
    rate, names = token.allow.rate, names or {}
    return fields(
        {
            "issuer": token.issuer_pk.hex(),
            "subject": token.subject_pk.hex(),
            **{
                f"stream {n}": f"{each.hex()}{names.get(each.hex(), '')}"
                for n, each in enumerate(token.allow.stream_ids, 1)
            },
            "valid for": f"{times.format_duration(token.allow.ttl)} from its authorization",
            "rate": f"{plural(rate.per_sec, 'message')} per second, bursts of {rate.burst}"
            if rate is not None
            else "not limited",
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
    help="Folder of the identity that signs: the hub's admin, or an issuer named in hub.yaml.",
)
@click.option(
    "--subject",
    required=True,
    shell_complete=completions.files,
    help="Identity that may write: its folder or card, or a client_id in hex.",
)
@click.option(
    "--stream",
    "-s",
    "streams",
    multiple=True,
    required=True,
    help="Stream that the token allows, by name or id; may be repeated.",
)
@click.option(
    "--ttl",
    type=times.Duration(1),
    default="1d",
    show_default=True,
    help="Lifetime of the token, from its authorization on.",
)
@click.option(
    "--rate",
    type=RateType(),
    help="Accepted messages per second, and at once: PER_SECOND,BURST [default: not limited].",
)
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

    Give the file to the subject, who runs `veen cap authorize`, or `veen send --cap`.
    """
    del out
    if not all(streams):
        raise click.UsageError("--stream is empty: a shell variable may be unset.")
    subject_pk = ClientId(verify_key_named(subject))
    key = Folder(issuer).unlock(Passphrase(passphrase_file)).signing_key
    names = {stream_id(name).hex(): f" ({name})" for name in streams}
    token = mint(key, subject_pk, [stream_id(name) for name in streams], ttl, rate)
    verify_token(token)
    write_new(target, token.encode())
    return Answer({**token_dict(token), "file": str(target)}, [f"wrote {target}", *token_lines(token, names)])


@command("veen cap authorize alice.cap --client alice")
@token_argument
@connects
def authorize(out: Output, *, target: Target, token: Path) -> Answer:
    """Give a token to the hub; messages use it from then on.

    The token's lifetime starts with the hub's receipt. Authorizing it again changes nothing. The token must
    be for the identity in --client, or for its client_id of one of the token's streams. A token that `veen
    grant issue` wrote is only kept: the grant itself is in the log.
    """
    del out
    made = read_object(CapToken, token)

    async def work() -> Any:
        async with target.connect() as hub:
            if not await _is_subject(hub, made):
                raise CommandFailed(
                    f"{token} is a token for {made.subject_pk.hex()}, not for this identity",
                    Exit.POLICY,
                    "give the token's identity with --client, or ask the issuer for a token for yours",
                )
            if not made.sig_chain:
                await hub.hold(made)
                return None
            receipt = await hub.authorize(made)
            return receipt, await hub.cap_status(made.auth_ref)

    if (authorized := loop.run(work())) is None:
        line = "kept the grant's token; hubs of level access know it from the grant"
        return Answer(token_dict(made), [line, f"  auth_ref {made.auth_ref.hex()}"])
    receipt, status = authorized
    expires = status.expires_at
    data = {
        **token_dict(made),
        "issued_at": receipt.hub_ts,
        "expires_at": expires,
        "receipt": receipt.encode().hex(),
    }
    until = f", valid until {times.format_utc(expires)}" if expires is not None else ""
    return Answer(
        data,
        [f"authorized at {times.format_utc(receipt.hub_ts)}{until}", f"  auth_ref {made.auth_ref.hex()}"],
    )


async def _is_subject(hub: Hub, token: CapToken) -> bool:
    """Return whether the token is for the connected identity, or for its client_id of one of the streams."""
    identity = hub.connection.identity
    assert identity is not None  # only anonymous connections have none
    if token.subject_pk == identity.client_id:
        return True
    for each in token.allow.stream_ids:
        if await hub.stream(each.hex()).client_id() == token.subject_pk:
            return True
    return False


@command("veen cap list --client alice", name="list")
@click.option(
    "--client",
    envvar="VEEN_CLIENT",
    show_envvar=True,
    shell_complete=completions.folders,
    help="Folder of the identity.",
)
def list_(out: Output, *, client: str | None) -> Answer:
    """List the tokens that an identity holds.

    Only tokens that the identity has authorized are listed. The hub is not asked; `veen cap status` asks it.
    """
    del out
    folder = Folder(Path(settings.required_value("client", client)).expanduser())
    folder.must_exist()
    names = {stream_id(name).hex(): name for known in known_streams(folder).values() for name in known}
    rows, lines = [], []
    for hub, _ in hub_folders(folder):
        content = CheckedStateStore(folder.state).load(hub, TOKENS_RECORD)
        held = HeldTokens.decode(content).tokens if content is not None else ()
        for each in held:
            expired = each.expires_at < times.now()
            rows.append(
                {
                    "hub_id": hub.hex(),
                    **token_dict(each.token),
                    "expires_at": each.expires_at,
                    "expired": expired,
                }
            )
            streams = ", ".join(names.get(one.hex(), one.hex()) for one in each.token.allow.stream_ids)
            until = times.format_utc(each.expires_at) + (" (EXPIRED)" if expired else "")
            lines += fields(
                {
                    "auth_ref": each.token.auth_ref.hex(),
                    "  hub": hub.hex(),
                    "  streams": streams,
                    "  subject": each.token.subject_pk.hex(),
                    "  valid until": until,
                }
            )
    return Answer({"tokens": rows}, lines or [f"{folder.root} holds no tokens"])


@command("veen cap inspect alice.cap", name="inspect")
@token_argument
def inspect(out: Output, *, token: Path) -> Answer:
    """Show what a token allows, and verify its signatures.

    Only the hub decides whether it accepts the issuer: see `veen cap status`.
    """
    del out
    made = read_object(CapToken, token)
    verify_token(made)
    return Answer(
        {**token_dict(made), "signatures": len(made.sig_chain), "holds": True},
        [*token_lines(made), f"verified: {plural(len(made.sig_chain), 'signature')} of the issuer"],
    )


def _auth_ref(text: str) -> AuthRef:
    path = Path(text)
    if path.exists():
        return read_object(CapToken, path).auth_ref
    try:
        return AuthRef.from_hex(text)
    except DecodeError:
        raise CommandFailed(
            f"{text} is neither a token file nor an auth_ref in hex",
            Exit.USAGE,
            "see a token's auth_ref with `veen cap inspect`",
        ) from None


@command("veen cap status alice.cap", "veen cap status AUTH_REF --json")
@click.argument("token", metavar="TOKEN|AUTH_REF", shell_complete=completions.files)
@connects
def status(out: Output, *, target: Target, token: str) -> Answer:
    """Ask the hub about a token.

    Exits with 4 if the hub does not know it.
    """
    del out
    auth_ref = _auth_ref(token)

    async def work() -> Any:
        async with target.connect(anonymous=True) as hub:
            try:
                return await hub.cap_status(auth_ref), hub.connection.time.now()
            except NotFound:
                raise CommandFailed(
                    f"the hub does not know token {auth_ref.hex()}",
                    Exit.REFUSED,
                    "give it to the hub with `veen cap authorize`",
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
                "valid until": expires,
                "issuer": found.issuer_pk.hex() if found.issuer_pk else None,
                "subject": found.subject_pk.hex() if found.subject_pk else None,
            }
        ),
    )
