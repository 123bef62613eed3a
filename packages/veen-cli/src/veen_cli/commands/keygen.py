"""``veen keygen``: create an identity in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import click

from veen_cli.arguments import times
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.frame.command_class import command
from veen_cli.frame.output import Answer, Output, fields
from veen_cli.identity import identity_folder
from veen_core.ids import UnixTime


@command(
    "veen keygen --out alice",
    "VEEN_PASSPHRASE=… veen keygen --out alice --quiet",
    "veen keygen --out throwaway --no-passphrase",
)
@click.option(
    "--out", "target", type=click.Path(path_type=Path), required=True, help="Folder of the new identity."
)
@click.option("--no-passphrase", is_flag=True, help="Do not seal the keys on disk (file mode 0600).")
@passphrase_option
def keygen(out: Output, *, target: Path, no_passphrase: bool, passphrase_file: Path | None) -> Answer:
    """Create an identity: keys to sign and to receive.

    An identity is a folder: keystore.enc holds the secrets, sealed with a passphrase, identity_card.pub is
    the card for others, and state/ records what the identity has verified about hubs. Admins and issuers of
    tokens are identities too.
    """
    del out
    folder = identity_folder.Folder(target)
    source = Passphrase(passphrase_file)
    now = UnixTime(times.now())
    card = folder.create(
        identity_folder.new_secrets(now),
        None if no_passphrase else lambda: source.get(str(target), new=True),
        now,
    )
    data = {
        "folder": str(target),
        "id_sign": card.id_sign.hex(),
        "id_dh": card.id_dh.hex(),
        "sealed": folder.sealed,
        "card": str(folder.card_file),
    }
    kept = (
        "sealed with your passphrase"
        if folder.sealed
        else "NOT sealed: anyone who can read this file can act as you"
    )
    return Answer(
        data,
        [
            f"created the identity {target}",
            *fields({"  signs as": card.id_sign.hex(), "  receives at": card.id_dh.hex()}),
            f"  secrets: {folder.keystore if folder.sealed else folder.plain} ({kept})",
            f"  give to others: {folder.card_file}",
        ],
    )
