"""``veen bridge doctor``: show that no token of a bridge leads back to the source (AGB0 J3)."""

from __future__ import annotations

from pathlib import Path

import click

from veen_bridge.commands.arguments import config_option, load_role
from veen_bridge.roles.path_check import check_paths
from veen_cli.frame import Answer, Exit, Output, command, passphrase_option


@command(
    "veen bridge doctor --config z2/bridge.yaml",
    "veen bridge doctor --config z2/bridge.yaml --other z1/bridge.yaml",
)
@config_option
@click.option(
    "--other",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Configuration of the role in the other zone: check it too, and compare keys and hubs.",
)
@passphrase_option
def doctor(out: Output, *, config_file: Path, other: Path | None, passphrase_file: Path | None) -> Answer:
    """Check every token that a role holds, and say whether a path leads back to the source.

    The exit code is 0 if no path leads back, 6 otherwise. The check reads files only and connects to no hub.
    """
    del out
    config, keys = load_role(config_file, passphrase_file)
    opposite = None
    if other is not None:
        opposite = load_role(other, passphrase_file)
    findings = check_paths(config, keys, other=opposite)
    one_way = all(finding.ok for finding in findings)
    data = {
        "role": config.role,
        "bridge_id": keys.bridge_id.hex(),
        "one_way": one_way,
        "checks": [{"check": each.check, "ok": each.ok, "detail": each.detail} for each in findings],
    }
    width = max(len(each.check) for each in findings)
    lines = [f"{'ok  ' if each.ok else 'FAIL'}  {each.check:<{width}}  {each.detail}" for each in findings]
    verdict = "no path leads back" if one_way else "a path may lead back: revoke or remove what FAIL names"
    return Answer(data, [*lines, verdict], Exit.OK if one_way else Exit.POLICY)
