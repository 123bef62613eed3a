"""``veen publish``: bind files to a version in the log, and compare files with it (spec-3 §6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import click

from veen_cli.frame import loop
from veen_cli.frame.command_class import command
from veen_cli.frame.command_groups import CommandGroup, LazyCommand
from veen_cli.frame.connection import stream_option
from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.frame.output import Answer, Output, plural
from veen_cli.operations.party import NameOrId, Party, party_view, unknown
from veen_cli.operations.published_files import files_argument, published_files
from veen_cli.overlays.overlay_stream import OverlayAccess, access_options, refused, sent_data
from veen_overlays.operations.content_root import content_root
from veen_overlays.operations.operation import IdentityId
from veen_overlays.operations.publication import (
    PUBLICATIONS,
    DataPublication,
    Publication,
    PublicationId,
    PublicationState,
    SurvivorRule,
    publication_id,
    publications_of,
    survivor,
)

_HERE: Final = "veen_cli.operations.publish"
COMMANDS: Final = {
    "add": LazyCommand(f"{_HERE}:add", "Publish files as a version of an object."),
    "verify": LazyCommand(f"{_HERE}:verify", "Compare files with a published version."),
    "prove": LazyCommand(
        "veen_cli.operations.publication_proof:prove",
        "Write the evidence of a published version to a file.",
    ),
    "check": LazyCommand(
        "veen_cli.operations.publication_proof:check",
        "Compare files with a publication's evidence, without a hub.",
    ),
    "list": LazyCommand(f"{_HERE}:list_", "List the published versions, and refused ones with the reason."),
}
publish = CommandGroup(
    "publish", COMMANDS, path="publish", help="Published content: bind files to the log, and compare them."
)

object_argument = click.argument(
    "publication", type=NameOrId(PublicationId, publication_id), metavar="OBJECT"
)
publisher_option = click.option(
    "--publisher", type=Party(), help="Identity that published it: folder, card or key in hex."
)


@command(
    "veen publish add rates v1.0 rates.csv --stream releases",
    "veen publish add model v2.1 weights.bin config.json --class model --label vision --stream releases",
)
@object_argument
@click.argument("version")
@files_argument
@click.option("--class", "content_class", default="binary", show_default=True, help="Class of the content.")
@click.option("--label", "labels", multiple=True, help="Word to search for; may be repeated.")
@click.option("--source", "source_uri", help="Address where the files can be fetched.")
@stream_option
@access_options
def add(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    publication: PublicationId,
    version: str,
    files: tuple[Path, ...],
    content_class: str,
    labels: tuple[str, ...],
    source_uri: str | None,
) -> Answer:
    """Publish files as a version of an object.

    OBJECT is a name, or an id in hex. The record contains the Merkle root over the names and contents of the
    files, not the files. The content of a version never changes: a second publication is refused.
    """
    with out.progress("hashing files"):
        found = published_files(files)
    root = content_root(found)

    async def work() -> Answer:
        async with party_view(access, stream, PUBLICATIONS) as party:
            for each in publications_of(await party.state()):
                if each.refused is None and _names(each) == (publication, version):
                    raise refused("PUBLICATION.P1", f"message {each.seq} of {stream} has published {version}")
            record = DataPublication(
                publication_id=publication,
                publisher_identity=party.identity,
                content_root=root,
                content_class=content_class,
                version=version,
                labels=tuple(sorted(set(labels))) or None,
                source_uri=source_uri,
            )
            receipt = await party.send(record)
            data = {
                **sent_data(record, receipt, stream),
                "publication_id": publication.hex(),
                "version": version,
                "content_root": root.hex(),
                "files": [each.name for each in found],
            }
            line = f"published {version} with {plural(len(found), 'file')} (message {receipt.stream_seq})"
            return Answer(data, [line, f"  content root {root.hex()}"])

    return loop.run(work())


def _names(publication: Publication) -> tuple[PublicationId, str]:
    return publication.record.publication_id, publication.record.version


@command(
    "veen publish verify rates rates.csv --stream releases",
    "veen publish verify rates rates.csv --version v1.0 --publisher alice.pub --stream releases",
)
@object_argument
@files_argument
@click.option("--version", help="The version to compare with [default: by --rule].")
@click.option(
    "--rule",
    type=click.Choice([each.value for each in SurvivorRule]),
    default=SurvivorRule.HIGHEST.value,
    show_default=True,
    help="Without --version: the highest version (v1.0-rc1 is lower than v1.0), or the latest in the stream.",
)
@publisher_option
@stream_option
@access_options
def verify(
    out: Output,
    *,
    access: OverlayAccess,
    stream: str,
    publication: PublicationId,
    files: tuple[Path, ...],
    version: str | None,
    rule: str,
    publisher: IdentityId | None,
) -> Answer:
    """Compare files with a published version.

    The log is verified first. Ends with exit code 3 if the files are not what was published. If several
    identities have published versions of the object, --publisher has to name one of them.
    """
    with out.progress("hashing files"):
        root = content_root(published_files(files))
    state = access.state(stream, PUBLICATIONS, f"stream {stream}")
    chosen = chosen_publication(state, stream, publication, version, publisher, SurvivorRule(rule))
    data = {"stream": stream, **_data(chosen), "computed_root": root.hex()}
    if chosen.record.content_root != root:
        raise CommandFailed(
            f"the files are not {chosen.record.version}: their content root is {root.hex()}, and message "
            f"{chosen.seq} of {stream} has published {chosen.record.content_root.hex()}",
            Exit.PROTOCOL,
            "fetch the files again, and check that they have the names that were published",
        )
    line = f"the files are {chosen.record.version}, published in message {chosen.seq} of {stream}"
    return Answer({**data, "holds": True}, [line, f"  publisher {chosen.record.publisher_identity.hex()}"])


def chosen_publication(  # noqa: PLR0917 - all the options that choose a version
    state: PublicationState,
    stream: str,
    publication: PublicationId,
    version: str | None,
    publisher: IdentityId | None,
    rule: SurvivorRule,
) -> Publication:
    """The publication that the options choose; raise if there is none, or if it has several publishers."""
    named = [
        each
        for each in publications_of(state)
        if each.refused is None and each.record.publication_id == publication
        if publisher in (None, each.record.publisher_identity)
        if version in (None, each.record.version)
    ]
    if len(publishers := {each.record.publisher_identity for each in named}) > 1:
        raise CommandFailed(
            f"{len(publishers)} identities have published this object in {stream}",
            Exit.USAGE,
            "choose one with --publisher; `veen publish list` names them",
        )
    if (chosen := survivor(named, rule)) is None:
        what = (
            f"publication {publication.hex()}"
            if version is None
            else (f"version {version} of publication {publication.hex()}")
        )
        raise unknown(what, stream, "veen publish list")
    return chosen


def _data(publication: Publication) -> dict[str, Any]:
    record = publication.record
    return {
        "publication_id": record.publication_id.hex(),
        "version": record.version,
        "publisher": record.publisher_identity.hex(),
        "content_class": record.content_class,
        "content_root": record.content_root.hex(),
        "labels": list(record.labels or ()),
        "source_uri": record.source_uri,
        "stream_seq": publication.seq,
        "published": publication.published,
        "refused": publication.refused,
    }


@command(
    "veen publish list --stream releases", "veen publish list rates --stream releases --json", name="list"
)
@click.argument(
    "publication", type=NameOrId(PublicationId, publication_id), metavar="[OBJECT]", required=False
)
@stream_option
@access_options
def list_(out: Output, *, access: OverlayAccess, stream: str, publication: PublicationId | None) -> Answer:
    """List the published versions, and refused ones with the reason."""
    del out
    state = access.state(stream, PUBLICATIONS, f"stream {stream}")
    found = [each for each in publications_of(state) if publication in (None, each.record.publication_id)]
    lines = []
    for each in found:
        record = each.record
        publisher = record.publisher_identity.hex()
        lines.append(f"{each.seq:>4}  {record.version}  {record.content_class}  by {publisher}")
        lines.append(f"      content root {record.content_root.hex()}")
        lines += [] if each.refused is None else [f"      refused: {each.refused}"]
    data = {"stream": stream, "publications": [_data(each) for each in found]}
    return Answer(data, lines or [f"{stream} has no such publication"])
