"""``veen id``: identities, their cards, keys and client_ids, and their records in a realm."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.frame import loop, settings
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import Target, connects, stream_option
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.identity.identity_folder import Folder, card_of, with_prekey
from veen_core.card import IdentityCard
from veen_core.ids import UnixTime

_RECORDS: Final = "veen_cli.overlays.identity"
COMMANDS: Final = {
    "show": LazyCommand(
        "veen_cli.commands.id:show", "Show an identity: its keys, and whether they are sealed."
    ),
    "card": LazyCommand(
        "veen_cli.commands.id:card", "Write the identity card, which others need to write to you."
    ),
    "rotate": LazyCommand(
        "veen_cli.commands.id:rotate", "Create a new receiving key, and a card that names it."
    ),
    "client-id": LazyCommand(
        "veen_cli.commands.id:client_id", "Show or renew the client_id that writes to a stream."
    ),
    "principal": LazyCommand(
        f"{_RECORDS}:principal", "Publish yourself as a principal: the root of devices and accounts."
    ),
    "device": LazyCommand(f"{_RECORDS}:device", "Publish one of your devices, or disable it."),
    "ctx": LazyCommand(f"{_RECORDS}:ctx", "Publish the profile of your account in a realm."),
    "org": LazyCommand(f"{_RECORDS}:org", "Publish the profile of an organisation."),
    "group": LazyCommand(
        f"{_RECORDS}:group", "Add accounts to a group of your organisation, or remove them."
    ),
    "role": LazyCommand(f"{_RECORDS}:role", "Give a role of your organisation to accounts and groups."),
    "handle": LazyCommand(f"{_RECORDS}:handle", "Give a handle of a realm to an account or an organisation."),
    "link": LazyCommand(f"{_RECORDS}:link", "Link your account to a subject at an external provider."),
    "revoke": LazyCommand(
        f"{_RECORDS}:revoke", "Revoke a device, a token, your account or your organisation."
    ),
    "whois": LazyCommand(
        "veen_cli.overlays.authentication:whois", "Show the account or organisation that has a handle."
    ),
    "authenticate": LazyCommand(
        "veen_cli.overlays.authentication:authenticate",
        "Show which account sent a message, or why it cannot be authenticated.",
    ),
}
id_ = CommandGroup(
    "id", COMMANDS, path="id", help="Identities: keys, cards, client_ids, and records in a realm."
)

client_option = click.option(
    "--client",
    envvar="VEEN_CLIENT",
    show_envvar=True,
    shell_complete=completions.folders,
    help="Folder of the identity to act as.",
)


def _folder(client: str | None) -> Folder:
    return Folder(Path(settings.required_value("client", client)).expanduser())


def _identity_dict(folder: Folder, card: IdentityCard) -> dict[str, Any]:
    return {
        "folder": str(folder.root),
        "id_sign": card.id_sign.hex(),
        "id_dh": card.id_dh.hex(),
        "sealed": folder.sealed,
        "prekeys": [{"dh_pk": each.dh_pk.hex(), "expires_at": each.expires_at} for each in card.prekeys],
        "card": str(folder.card_file),
    }


def _identity_lines(folder: Folder, card: IdentityCard) -> list[str]:
    prekeys = [f"{each.dh_pk.hex()} until {times.format_utc(each.expires_at)}" for each in card.prekeys]
    return [
        str(folder.root),
        *fields(
            {
                "  signs as": card.id_sign.hex(),
                "  receives at": card.id_dh.hex(),
                **{f"  prekey {n}": text for n, text in enumerate(prekeys, 1)},
                "  secrets": "sealed with a passphrase" if folder.sealed else "not sealed",
                "  card": folder.card_file,
            }
        ),
    ]


@command("veen id show --client alice")
@client_option
def show(out: Output, *, client: str | None) -> Answer:
    """Show an identity: its keys, and whether they are sealed.

    Only the card is read, so no passphrase is needed.
    """
    del out
    folder = _folder(client)
    card = folder.card()
    return Answer(_identity_dict(folder, card), _identity_lines(folder, card))


@command("veen id card --client alice --out alice.pub", name="card")
@client_option
@click.option(
    "--out",
    "target",
    type=click.Path(path_type=Path),
    help="File to write; without it, the card is printed in hex.",
)
def card(out: Output, *, client: str | None, target: Path | None) -> Answer:
    """Write the identity card, which others need to write to you.

    It contains public keys only and is signed by the identity; `veen verify` verifies it.
    """
    folder = _folder(client)
    found = folder.card()
    wire = found.encode()
    if target is not None:
        target.write_bytes(wire)
    elif out.quiet and not out.as_json:
        click.echo(wire.hex())
    return Answer(
        {**_identity_dict(folder, found), "bytes": wire.hex(), "file": str(target) if target else None},
        [f"wrote {target}, the card of {found.id_sign.hex()}"] if target else [wire.hex()],
    )


@command("veen id rotate --client alice --ttl 30d")
@client_option
@click.option(
    "--ttl",
    type=times.Duration(1),
    default="30d",
    show_default=True,
    help="How long others seal to the new key.",
)
@passphrase_option
def rotate(out: Output, *, client: str | None, ttl: int, passphrase_file: Path | None) -> Answer:
    """Create a new receiving key, and a card that names it.

    Give the new card to the people who write to you: they seal to the new key until it expires. Older keys
    stay in the keystore, so that older messages can still be opened.
    """
    del out
    folder, source, now = _folder(client), Passphrase(passphrase_file), UnixTime(times.now())
    kept: list[bytes] = []

    def passphrase() -> bytes:
        if not kept:
            kept.append(source.get(str(folder.root)))
        return kept[0]

    secrets = with_prekey(folder.open(passphrase), UnixTime(now + ttl))
    made = folder.write(secrets, passphrase if folder.sealed else None, now)
    assert made == card_of(secrets, now)
    return Answer(_identity_dict(folder, made), _identity_lines(folder, made))


@command(
    "veen id client-id --stream orders --client alice",
    "veen id client-id --stream orders --client alice --renew",
    name="client-id",
)
@stream_option
@click.option("--renew", is_flag=True, help="Create a new client_id (spec-1 KEX1+ 4.1).")
@connects
def client_id(out: Output, *, target: Target, stream: str, renew: bool) -> Answer:
    """Show or renew the client_id that writes to a stream.

    Each stream has a client_id of its own, so that the hub cannot link the streams of one identity. Ask the
    issuer for a token for the client_id, or for the identity itself (`veen cap issue --subject`).
    """
    del out

    async def work() -> tuple[str, str]:
        async with target.connect() as hub:
            place = hub.stream(stream)
            found = await (place.rotate() if renew else place.client_id())
            return found.hex(), place.label().hex()

    found, label = loop.run(work())
    return Answer({"client_id": found, "stream": stream, "label": label}, [found])
