"""``veen record init``: a role's identity, its one token and its recorder.yaml (SDR0 3.2.2, 3.2.3)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, fields, plural
from veen_cli.frame.settings import parse_hub_url
from veen_cli.identity.identity_folder import Folder, new_secrets, recipient_named
from veen_cli.record.label_classes import LONG_TERM, publish_classes
from veen_cli.record.role_file import RoleFile, load_profile, parse_file
from veen_cli.record.session import open_session
from veen_core.cap import CapToken
from veen_core.card import IdentityCard
from veen_core.errors import VeenError
from veen_core.ids import ClientId, HubId, UnixTime
from veen_core.keys import SigningKey
from veen_core.keystore import Secrets
from veen_hub.client import FileStateStore, held_tokens, replace_file
from veen_hub.client.roles import issue_role_token, write_settings
from veen_overlays.recorder.profile import PROFILE_KEYS
from veen_overlays.recorder.roles import ADMIN, PRODUCER, Role, check_distinct, writable_streams

CAP_FILE: Final = "role.cap"
ROLE_RECORD: Final = "recorder_role"
"""Name of the state record that says which role an identity was given at a hub (SDR0 3.2.3)."""


@command(
    "veen record init --role recorder_admin --profile recorder.yaml --out admin --hub http://127.0.0.1:8080 "
    "--trust HUB_ID --issuer operator",
    "veen record init --role recorder_producer --profile recorder.yaml --out shop "
    "--hub http://127.0.0.1:8080 --trust HUB_ID --issuer operator --stream record/app/orders "
    "--origin shop --to admin/identity",
)
@click.option("--role", type=click.Choice([PRODUCER, ADMIN]), required=True, help="The role to set up.")
@click.option(
    "--profile",
    "profile_file",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("recorder.yaml"),
    show_default=True,
    help="File with the profile: the streams, their event types and bounds.",
)
@click.option(
    "--out", "target", type=click.Path(path_type=Path), required=True, help="Folder to make for the role."
)
@click.option("--hub", required=True, help="Address of the role's hub.")
@click.option("--trust", required=True, help="hub_id of that hub, in hex.")
@click.option(
    "--issuer",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the identity that signs tokens for that hub; leave it out for an open hub.",
)
@click.option("--stream", "-s", "streams", multiple=True, help="recorder_producer: stream it writes to.")
@click.option("--origin", help="recorder_producer: component that its events name.")
@click.option(
    "--to",
    shell_complete=completions.files,
    help="recorder_producer: the recorder's reader, by folder, card or X25519 key in hex: the identity of "
    "recorder_admin.",
)
@click.option(
    "--realm-reader",
    shell_complete=completions.files,
    help="recorder_admin: reader of the realm's label classes [default: itself].",
)
@click.option(
    "--identity",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of an existing identity to use [default: make one].",
)
@click.option(
    "--ttl", type=times.Duration(1), default="365d", show_default=True, help="Lifetime of the token."
)
@click.option("--no-passphrase", is_flag=True, help="Do not seal the keys on disk (file mode 0600).")
@passphrase_option
def init(
    out: Output,
    *,
    role: Role,
    profile_file: Path,
    target: Path,
    hub: str,
    trust: str,
    issuer: Path | None,
    identity: Path | None,
    ttl: int,
    no_passphrase: bool,
    passphrase_file: Path | None,
    **own: Any,
) -> Answer:
    """Make the identity of one role, issue exactly the token that it needs, and write its recorder.yaml.

    recorder_producer may write to the streams that are named, and reads nothing: its events are sealed to
    the key of --to. recorder_admin may write migrations and label classes, and reads all streams; init
    publishes the label classes of all streams with retention long_term. An identity cannot be both.
    """
    del out
    if target.exists() and any(target.iterdir()):
        raise CommandFailed(f"{target} is not empty", Exit.POLICY, "choose another folder")
    profile, shared = load_profile(profile_file)
    settings = {key: profile[key] for key in profile if key in PROFILE_KEYS | {"producers"}}
    settings |= {"role": role, "hub": parse_hub_url(hub), "trust": trust}
    settings |= {"client": "identity" if identity is None else str(identity.absolute())}
    if issuer is not None:
        settings["tokens"] = [CAP_FILE]
    settings |= _own_settings(role, **own)
    parsed, access = parse_file(settings, target.absolute())  # raises before anything is written
    passphrases = Passphrase(passphrase_file)
    secrets = _secrets(identity, passphrases)
    client = ClientId(secrets.signing_key.public)
    given, tokens = _known_roles(access.client, HubId.from_hex(trust))
    check_distinct(shared.profile, role, client, given=given, tokens=tokens, producers=shared.producers)
    token = None
    if issuer is not None:
        key: SigningKey = Folder(issuer).unlock(passphrases).signing_key
        streams = writable_streams(parsed.profile, role, parsed.writes)
        token = issue_role_token(key, client, streams, ttl=ttl, role=role)
    if identity is None:
        seal = None if no_passphrase else lambda: passphrases.get(str(access.client), new=True)
        Folder(access.client).create(secrets, seal, secrets.created_at)
    # Before the token is written: from then on the identity can act in its role.
    FileStateStore(Folder(access.client).state).save(HubId.from_hex(trust), ROLE_RECORD, role.encode())
    if token is not None:
        replace_file(access.tokens[0], token.encode())
    write_settings(target / "recorder.yaml", settings)
    file = RoleFile(
        path=target / "recorder.yaml", role=parsed, access=access, passphrase=passphrases, wait=2.0
    )
    published = _publish(file) if role == ADMIN else []
    return _answer(file, client, token, published)


def _own_settings(
    role: Role, streams: tuple[str, ...], origin: str | None, to: str | None, realm_reader: str | None
) -> dict[str, Any]:
    if role == ADMIN:
        if streams or origin is not None or to is not None:
            raise click.UsageError("--stream, --origin and --to are for --role recorder_producer.")
        return {} if realm_reader is None else {"realm_recipient": _key(realm_reader)}
    if realm_reader is not None:
        raise click.UsageError("--realm-reader is for --role recorder_admin.")
    if origin is None or to is None:
        raise click.UsageError("--role recorder_producer needs --origin NAME and --to READER.")
    return {"origin": origin, "writes": list(streams), "recipient": _key(to)}


def _key(text: str) -> str:
    named = recipient_named(text)
    return (named.id_dh if isinstance(named, IdentityCard) else named).hex()


def _secrets(identity: Path | None, passphrases: Passphrase) -> Secrets:
    if identity is not None:
        return Folder(identity).unlock(passphrases)
    return new_secrets(UnixTime(times.now()))


def _known_roles(client: Path, hub: HubId) -> tuple[tuple[str, ...], tuple[CapToken, ...]]:
    """The roles that an identity was given at a hub, and the tokens that it has authorized there."""
    folder = Folder(client).state
    if not folder.is_dir():
        return (), ()
    store = FileStateStore(folder)
    role = store.load(hub, ROLE_RECORD)
    return () if role is None else (role.decode(errors="replace"),), held_tokens(store, hub)


def _publish(file: RoleFile) -> list[str]:
    async def work() -> list[str]:
        async with open_session(file) as session:
            return [each.stream for each in await publish_classes(session)]

    try:
        return loop.run(work())
    except VeenError as exc:
        again = f"remove {os.fspath(file.path.parent)} and run the command again"
        raise CommandFailed(
            f"the role was made, but its label classes were not published: {exc.message}", Exit.NETWORK, again
        ) from None


def _answer(file: RoleFile, client: ClientId, token: CapToken | None, published: list[str]) -> Answer:
    role, target = file.role, file.path.parent
    writes = role.writes if role.role == PRODUCER else ("migrations", "label classes")
    data = {
        "folder": str(target),
        "config": str(file.path),
        "role": role.role,
        "client_id": client.hex(),
        "profile_id": role.profile.profile_id.hex(),
        "writes_to": list(writes),
        "token": str(file.access.tokens[0]) if token is not None else None,
        "classes_published": published,
        "retention": LONG_TERM,
    }
    rows = {
        "  client_id": client.hex(),
        "  profile": f"{role.profile.name} ({role.profile.profile_id.hex()[:16]}…)",
        "  connects to": f"{file.access.hub} ({file.access.trust})",
        "  may write": ", ".join(writes),
        "  token": file.access.tokens[0] if token is not None else "none: the hub must be open",
        "  configuration": file.path,
    }
    if role.role == ADMIN:
        rows["  label classes"] = (
            f"{plural(len(published), 'label')} set to retention {LONG_TERM}"
            if published
            else f"none: {file.path.name} names no realm, so no hub keeps the streams {LONG_TERM}"
        )
    return Answer(data, [f"made {role.role} in {target}", *fields(rows)])
