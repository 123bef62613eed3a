"""``veen publish prove`` and ``check``: a publication's evidence as one file, and its offline check."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from veen_cli.arguments import completions, times
from veen_cli.arguments.object_files import write_whole
from veen_cli.arguments.passphrase import Passphrase, passphrase_option
from veen_cli.evidence.hub_log import cosigned_step
from veen_cli.evidence.verify import TrustOptions, pinned_hub, trust_options
from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output
from veen_cli.identity.identity_folder import Folder
from veen_cli.operations.party import NameOrId, Party, party_view
from veen_cli.operations.publish import chosen_publication
from veen_cli.operations.published_files import files_argument, published_files
from veen_cli.overlays.overlay_stream import OverlayAccess, OverlayStream, access_options
from veen_core.errors import DecodeError
from veen_core.hub_evidence import HubEvidence
from veen_core.ids import StreamSeq
from veen_overlays.live.opening import open_msg
from veen_overlays.operations.content_root import content_root
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.publication import PUBLICATIONS, PublicationId, SurvivorRule, publication_id
from veen_overlays.operations.publication_evidence import publication_evidence, verify_publication_evidence


@command("veen publish prove rates --stream releases --out rates.evidence")
@click.argument("publication", type=NameOrId(PublicationId, publication_id), metavar="OBJECT")
@click.option("--version", help="The version [default: the highest].")
@click.option("--publisher", type=Party(), help="Identity that published it: folder, card or key in hex.")
@click.option(
    "--out",
    "-o",
    "file",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write.",
)
@stream_option
@access_options
def prove(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    publication: PublicationId,
    version: str | None,
    publisher: IdentityId | None,
    file: Path,
) -> Answer:
    """Write the evidence of a published version to a file.

    The file has the sealed message and the proof that the message is in the hub log. A holder of a reader key
    of the stream checks files against it with `veen publish check`, without the hub.
    """

    async def work() -> tuple[Any, bytes, HubEvidence]:
        async with party_view(access, stream, PUBLICATIONS, must_exist=True) as party:
            if party.source.hub.connection.profile.epoch_sec:
                raise CommandFailed(
                    "at a hub with epochs a stream has many labels, and this command proves one",
                    Exit.POLICY,
                    "use `veen proof --to-hub` with --epoch",
                )
            state = await party.state()
            chosen = chosen_publication(state, stream, publication, version, publisher, SurvivorRule.HIGHEST)
            first = await party.view.message(chosen.seq)
            links = state.get("links", {})
            link = links.get(chosen.record.publisher_identity + (first.client_id or b""))
            with out.progress("waiting for the hub log"):
                seqs = [chosen.seq] if link is None else [link[0][1], chosen.seq]
                pairs = [await _pair(party.source, seq) for seq in seqs]
            return chosen, publication_evidence(pairs), pairs[-1][1]

    chosen, content, evidence = loop.run(work())
    write_whole(file, content)
    hub = evidence.identity.hub_id.hex()
    lines = [
        f"{chosen.record.version} is message {chosen.seq} of {stream}; wrote {file} ({len(content)} bytes)",
        f"check files without the hub: veen publish check {quote(str(file))} FILE… --trust {hub}",
    ]
    data = {"stream": stream, "stream_seq": chosen.seq, "version": chosen.record.version, "hub_id": hub}
    return Answer({**data, "bytes": len(content), "file": str(file)}, lines)


async def _pair(source: OverlayStream, seq: int) -> tuple[bytes, HubEvidence]:
    """A message of the stream with its hub evidence."""
    (entry,) = await source.hub.log_reader().page(source.stream.label(), StreamSeq(seq), 1)
    return entry.msg_bytes, await source.stream.evidence(seq)


@command("veen publish check rates.evidence rates.csv --trust HUB_ID --reader realm")
@click.argument("evidence", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@files_argument
@click.option(
    "--reader",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    shell_complete=completions.folders,
    help="Folder of a key that opens the message; may be repeated [default: --client].",
)
@passphrase_option
@trust_options
def check(
    out: Output,
    *,
    evidence: Path,
    files: tuple[Path, ...],
    reader: tuple[Path, ...],
    passphrase_file: Path | None,
    against: TrustOptions,
) -> Answer:
    """Compare files with a publication's evidence, without a hub.

    Ends with exit code 3 if the files are not what was published, or if the evidence does not verify. The
    evidence does not prove that no earlier message has published the version: `veen publish verify` does.
    """
    folders = [*reader, *([Path(against.client)] if against.client is not None else [])]
    pin, policy = pinned_hub(against.trust), against.policy()
    if pin is None:
        raise click.UsageError(
            "--trust is missing: give the hub_id of the hub whose log must contain the publication."
        )
    keys = [key for each in folders for key in Folder(each).unlock(Passphrase(passphrase_file)).dh_keys]
    try:
        found = verify_publication_evidence(
            evidence.read_bytes(), lambda msg: open_msg(msg, keys), pinned=pin, policy=policy
        )
    except DecodeError as exc:
        raise CommandFailed(
            f"{evidence} is damaged, or not the evidence of a publication: {exc.message}",
            Exit.PROTOCOL,
            "fetch it again; `veen publish prove` writes such files",
        ) from None
    with out.progress("hashing files"):
        root = content_root(published_files(files))
    record = found.record
    if root != record.content_root:
        raise CommandFailed(
            f"the files are not {record.version}: their content root is {root.hex()}, and "
            f"{record.content_root.hex()} was published",
            Exit.PROTOCOL,
            "fetch the files again, and check that they have the names that were published",
        )
    when = times.format_utc(found.hub_ts)
    lines = [
        f"the files are {record.version}, published by {record.publisher_identity.hex()}",
        f"  message {found.stream_seq} of label {found.label.hex()}, receipt of {when}",
        f"  {cosigned_step(found.cosigned, policy)}",
    ]
    data = {
        "holds": True,
        "version": record.version,
        "publisher": record.publisher_identity.hex(),
        "content_root": root.hex(),
        "hub_id": found.hub_id.hex(),
        "label": found.label.hex(),
        "stream_seq": found.stream_seq,
        "hub_ts": found.hub_ts,
    }
    return Answer(data, lines)
