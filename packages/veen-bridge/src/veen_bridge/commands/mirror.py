"""``veen bridge mirror`` and the program ``veen-bridge``: copy streams live from one hub to another.

Exit codes of ``--check``: 0 every record agrees with the source's receipts, 3 one does not.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, NoReturn

import click

from veen_bridge.commands.mirror_settings import listen_address, read_settings
from veen_bridge.mirror.check import StreamCheck, check_stream
from veen_bridge.mirror.process import serve
from veen_bridge.mirror.service import MirrorSettings, connected
from veen_bridge.transfer import Mode
from veen_cli.frame import (
    Answer,
    Exit,
    Output,
    command,
    passphrase_option,
    plural,
    run_command,
    start_process,
)
from veen_hub.ops.logs import finish, set_up

ENVIRONMENT: Final = "VEEN_BRIDGE_"
"""Prefix of the variables of most options; spec-4's own arguments have short names too."""


def _hub_options(side: str) -> list[Callable[[Any], Any]]:
    """Return the options that name one hub."""
    upper = side.upper()
    path = click.Path(path_type=Path, dir_okay=False, exists=True)
    return [
        click.option(
            f"--{side}-url",
            required=True,
            envvar=[f"VEEN_{upper}_URL", f"{ENVIRONMENT}{upper}_URL"],
            show_envvar=True,
            help=f"Address of the {side} hub.",
        ),
        click.option(
            f"--{side}-trust",
            required=True,
            envvar=f"VEEN_{upper}_TRUST",
            show_envvar=True,
            help=f"hub_id of the {side} hub, in hex.",
        ),
        click.option(
            f"--{side}-ca", type=path, help=f"PEM file of the authority of the {side}'s certificate."
        ),
        click.option(
            f"--{side}-cert",
            type=path,
            envvar=f"VEEN_{upper}_CERT",
            show_envvar=True,
            help=f"PEM file with the bridge's certificate, if the {side} hub requires one.",
        ),
        click.option(
            f"--{side}-cert-key",
            type=path,
            envvar=f"VEEN_{upper}_CERT_KEY",
            show_envvar=True,
            help=f"PEM file with the private key of --{side}-cert.",
        ),
    ]


def _options(work: Callable[..., Any]) -> Callable[..., Any]:
    folder = click.Path(path_type=Path, file_okay=False)
    file = click.Path(path_type=Path, dir_okay=False, exists=True)
    options: list[Callable[[Any], Any]] = [
        *_hub_options("source"),
        *_hub_options("target"),
        click.option(
            "--streams",
            multiple=True,
            envvar="VEEN_STREAMS",
            show_envvar=True,
            help="Stream name, id, or a pattern such as 'wallet/*'; repeatable, or separated by commas.",
        ),
        click.option(
            "--realm",
            envvar="VEEN_BRIDGE_REALM",
            show_envvar=True,
            help="Name or id of a realm: its admin streams are mirrored too.",
        ),
        click.option(
            "--stream-list",
            type=file,
            envvar="VEEN_STREAM_LIST",
            show_envvar=True,
            help="File with one stream name per line; patterns in --streams choose from it.",
        ),
        click.option(
            "--map",
            "rules",
            multiple=True,
            metavar="FROM=TO",
            help="Name at the target, e.g. 'core/*=mirror/core/*'; by default the same name.",
        ),
        click.option(
            "--mode",
            type=click.Choice([mode.value for mode in Mode]),
            default=Mode.WRAP.value,
            show_default=True,
            envvar="VEEN_BRIDGE_MODE",
            show_envvar=True,
            help="wrap: original message and receipt, blind. reseal: same schema and body, sealed to the "
            "target's readers. reference: the receipt's values alone.",
        ),
        click.option(
            "--client",
            type=folder,
            required=True,
            envvar="VEEN_CLIENT",
            show_envvar=True,
            help="Folder of the bridge's identity, which signs at the target.",
        ),
        click.option(
            "--source-reader",
            "source_readers",
            type=folder,
            multiple=True,
            envvar="VEEN_SOURCE_READER",
            show_envvar=True,
            help="Identity folder with the source's reader key (mode reseal); repeatable.",
        ),
        click.option(
            "--target-reader",
            "target_readers",
            type=folder,
            multiple=True,
            envvar="VEEN_TARGET_READER",
            show_envvar=True,
            help="Identity folder with the target's reader key; copies are sealed to it "
            "[default: the bridge's own key].",
        ),
        click.option(
            "--cap",
            "caps",
            type=file,
            multiple=True,
            envvar="VEEN_CAP",
            show_envvar=True,
            help="Cap token for the target streams, for the bridge's identity key; repeatable.",
        ),
        click.option(
            "--state",
            type=folder,
            envvar="VEEN_BRIDGE_STATE",
            show_envvar=True,
            help="Folder for verified positions and evidence; it may be lost [default: CLIENT/state].",
        ),
        click.option(
            "--listen",
            default="127.0.0.1:0",
            show_default=True,
            envvar="VEEN_BRIDGE_LISTEN",
            show_envvar=True,
            metavar="HOST:PORT",
            help="Address of /healthz, /readyz and /metrics; port 0 takes a free one.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(["debug", "info", "warning", "error"]),
            default="info",
            show_default=True,
            help="Least severe log events to write.",
        ),
        click.option(
            "--check",
            is_flag=True,
            help="Compare the target's records with the source's receipts, print the result, and exit.",
        ),
        passphrase_option,
    ]
    for option in reversed(options):
        work = option(work)
    return work


@command(
    "veen bridge mirror --source-url http://a:8080 --source-trust HUB_ID --target-url http://b:8080 "
    "--target-trust HUB_ID --streams orders --client bridge",
    "veen bridge mirror … --streams 'wallet/*' --stream-list names.txt --mode reseal --source-reader reader",
    "veen bridge mirror … --realm shop --target-reader realm",
    "veen bridge mirror … --streams orders --check",
    name="mirror",
)
@_options
def mirror(out: Output, *, check: bool, listen: str, log_level: str, **given: Any) -> Answer:
    """Follow streams of one hub and copy their events to another, until SIGTERM.

    Every source entry is verified first, and copied once: the target's log says what it already holds, so the
    mirror resumes after a crash, a restart of either hub, or the loss of its own disk. If the source
    contradicts what it signed before, the mirror stops and names the folder with the evidence.
    """
    import uvloop  # noqa: PLC0415 - slow to import

    settings = read_settings(**given)
    if check:
        return _answer(uvloop.run(_check(settings)))
    address = listen_address(listen)
    always = {"component": "bridge", "role": os.environ.get("VEEN_ROLE", "bridge")}
    if tenant := os.environ.get("VEEN_TENANT_ID"):
        always["tenant_id"] = tenant
    set_up(log_level, **always)

    def announce(url: str) -> None:
        if not out.quiet:
            click.echo(f"veen-bridge listening on {url}")

    try:
        uvloop.run(serve(settings, address, announce))
    finally:
        finish()
    return Answer({"stopped": True}, [])


# --- the check


async def _check(settings: MirrorSettings) -> dict[str, StreamCheck]:
    async with AsyncExitStack() as stack:
        source, target = await stack.enter_async_context(connected(settings))
        options, found = settings.options, {}
        for pair in settings.pairs:
            found[pair.source] = await check_stream(
                source,
                source.stream(pair.source, readers=options.source_readers),
                target,
                target.stream(pair.target, readers=options.target_readers),
            )
        return found


def _answer(found: dict[str, StreamCheck]) -> Answer:
    lines, rows = [], {}
    for stream, result in found.items():
        rows[stream] = {
            "checked": result.checked,
            "faulty": result.faulty,
            "repeated": result.repeated,
            "missing": result.missing,
            "faults": [
                {
                    "target_seq": fault.target_seq,
                    "source_label": fault.source_label.hex(),
                    "source_seq": fault.source_seq,
                    "why": fault.why,
                }
                for fault in result.faults
            ],
        }
        verdict = "ok" if result.ok else "FAULTY"
        lines.append(
            f"{verdict:<7} {stream}  {plural(result.checked, 'record')}, {result.faulty} faulty, "
            f"{result.repeated} repeated, {result.missing} missing"
        )
        lines += [
            f"        entry {fault.target_seq}: {fault.why} (source entry {fault.source_seq} of label "
            f"{fault.source_label.hex()})"
            for fault in result.faults
        ]
    ok = all(result.ok for result in found.values())
    return Answer({"ok": ok, "streams": rows}, lines, Exit.OK if ok else Exit.PROTOCOL)


def main() -> NoReturn:
    """Run the program ``veen-bridge``: ``veen bridge mirror`` under spec-4's name."""
    start_process(lambda: run_command(mirror, name="veen-bridge", component="bridge"))


if __name__ == "__main__":
    main()
