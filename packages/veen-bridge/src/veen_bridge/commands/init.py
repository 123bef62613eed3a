"""``veen bridge init``: a role's identity, its one token and its configuration (AGB0 4.3, RESOLUTIONS P5)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import yaml

from veen_bridge.roles.config import OFFLINE, ONLINE, BridgeConfig, Role, parse_config
from veen_bridge.roles.templates import issue_token, writable_streams
from veen_cli.frame import (
    Answer,
    CommandFailed,
    Duration,
    Exit,
    Folder,
    Output,
    Passphrase,
    command,
    fields,
    new_secrets,
    parse_hub_url,
    passphrase_option,
)
from veen_core.ids import ClientId, UnixTime
from veen_hub.client import replace_file


@command(
    "veen bridge init --role bridge_online --out z1 --hub http://127.0.0.1:8080 --trust HUB_ID "
    "--issuer admin1 --stream 'export/zone1/*'",
    "veen bridge init --role bridge_offline --out z2 --hub http://127.0.0.1:8081 --trust HUB_ID "
    "--issuer admin2 --source SOURCE_HUB_ID --source-bridge BRIDGE_ID --stream import/zone1/orders",
)
@click.option("--role", type=click.Choice([ONLINE, OFFLINE]), required=True, help="The role to set up.")
@click.option(
    "--out", "target", type=click.Path(path_type=Path), required=True, help="Folder to make for the role."
)
@click.option("--hub", required=True, help="Address of the role's own hub.")
@click.option("--trust", required=True, help="hub_id of that hub, in hex.")
@click.option(
    "--issuer",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of the identity that signs tokens for that hub; leave it out for an open hub.",
)
@click.option(
    "--stream",
    "-s",
    "streams",
    multiple=True,
    help="bridge_online: stream that may be exported, * is allowed. bridge_offline: import stream in full.",
)
@click.option("--source", help="bridge_offline: hub_id of the source hub whose bundles are accepted.")
@click.option("--source-bridge", help="bridge_offline: bridge_id of the bridge_online of that hub.")
@click.option(
    "--map",
    "rules",
    multiple=True,
    metavar="FROM=TO",
    help="bridge_offline: mapping rule  [default: export/*=import/*].",
)
@click.option(
    "--reader",
    "readers",
    multiple=True,
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder of a reader key of the role's streams. bridge_online: to carry attachments. bridge_offline: "
    "key to which imported events are sealed [default: the bridge's own].",
)
@click.option("--operator", default="unnamed", show_default=True, help="Name in the audit records.")
@click.option("--ttl", type=Duration(1), default="30d", show_default=True, help="Lifetime of the token.")
@click.option("--no-passphrase", is_flag=True, help="Do not seal the keys on disk (file mode 0600).")
@passphrase_option
def init(
    out: Output,
    *,
    role: Role,
    target: Path,
    hub: str,
    trust: str,
    issuer: Path | None,
    streams: tuple[str, ...],
    source: str | None,
    source_bridge: str | None,
    rules: tuple[str, ...],
    readers: tuple[Path, ...],
    operator: str,
    ttl: int,
    no_passphrase: bool,
    passphrase_file: Path | None,
) -> Answer:
    """Make the identity of one role, issue exactly the token that it needs, and write its configuration.

    bridge_online may write to bridge/online/log and to nothing else. bridge_offline may write to the import
    streams that are named and to bridge/offline/log. A token that permits more is refused.
    """
    del out
    if target.exists() and any(target.iterdir()):
        raise CommandFailed(f"{target} is not empty", Exit.POLICY, "choose another folder")
    settings = _settings(role, parse_hub_url(hub), trust, operator, streams, gated=issuer is not None)
    if readers:
        settings["readers"] = [str(folder.absolute()) for folder in readers]
    if role == OFFLINE:
        settings["sources"] = [_source(source, source_bridge, rules)]
    elif source is not None or source_bridge is not None or rules:
        raise click.UsageError("--source, --source-bridge and --map are for --role bridge_offline.")
    config = parse_config(settings, target.absolute())  # refuses a wrong setting before anything is written
    passphrases = Passphrase(passphrase_file)
    issuer_key = Folder(issuer).unlock(passphrases).signing_key if issuer is not None else None
    now = UnixTime(int(time.time()))
    secrets = new_secrets(now)
    bridge = ClientId(secrets.signing_key.public)
    token = None
    if issuer_key is not None:
        token = issue_token(issuer_key, role, bridge, streams, config.sources, ttl=ttl)
    seal = None if no_passphrase else lambda: passphrases.get(str(config.client), new=True)
    Folder(config.client).create(secrets, seal, now)
    if token is not None:
        replace_file(config.tokens[0], token.encode())
    content = yaml.safe_dump(settings, sort_keys=False).encode()
    replace_file(target / "bridge.yaml", content, shared=True)
    return _answer(target, config, bridge, streams, issued=token is not None)


def _settings(
    role: Role, hub: str, trust: str, operator: str, streams: tuple[str, ...], *, gated: bool
) -> dict[str, Any]:
    settings: dict[str, Any] = {"role": role, "hub": hub, "trust": trust, "client": "identity"}
    if gated:
        settings["tokens"] = ["role.cap"]
    return settings | {"operator": operator, "streams": list(streams)}


def _source(source: str | None, bridge: str | None, rules: tuple[str, ...]) -> dict[str, Any]:
    if source is None:
        raise click.UsageError(
            "--role bridge_offline needs --source: the hub_id of the hub whose bundles it accepts."
        )
    found: dict[str, Any] = {"hub_id": source}
    if bridge is not None:
        found["bridge_id"] = bridge
    pairs = [rule.partition("=") for rule in rules or ("export/*=import/*",)]
    return found | {"mapping": [{"from": old, "to": new} for old, _, new in pairs]}


def _answer(
    target: Path, config: BridgeConfig, bridge: ClientId, streams: tuple[str, ...], *, issued: bool
) -> Answer:
    writes = writable_streams(config.role, streams)
    data = {
        "folder": str(target),
        "config": str(target / "bridge.yaml"),
        "role": config.role,
        "bridge_id": bridge.hex(),
        "writes_to": list(writes),
        "token": str(config.tokens[0]) if issued else None,
    }
    lines = [
        f"made {config.role} in {target}",
        *fields(
            {
                "  bridge_id": bridge.hex(),
                "  connects to": f"{config.hub} ({config.trust})",
                "  may write to": ", ".join(writes),
                "  token": config.tokens[0] if issued else "none: the hub must be open",
                "  configuration": target / "bridge.yaml",
            }
        ),
    ]
    return Answer(data, lines)
