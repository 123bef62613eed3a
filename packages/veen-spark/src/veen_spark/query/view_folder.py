"""Views in a folder, as the follower of ``veen query serve`` writes them, read by Spark (RESOLUTIONS P13).

The manifest names every file with its hash. Tasks compare the hashes before any row is read; a file that is
missing, torn or altered ends the query.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veen_core.export import FileHash
from veen_core.hub_identity import HubIdentity
from veen_overlays.live.query_view.files.data_files import check_file, path_of
from veen_overlays.live.query_view.files.manifest import MANIFEST, load_manifest
from veen_overlays.live.query_view.snapshot import prefix_of
from veen_spark.errors import SparkSetupError
from veen_spark.fold.ranges import spark_type
from veen_spark.query.event_rows import VIEW_SCHEMA
from veen_spark.query.event_view import EventView
from veen_spark.read.plan import MAX_PARTITION_BYTES, group_by_size
from veen_spark.verify.tasks import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A data file as the manifest names it."""

    path: str
    size: int
    hash: bytes


def is_view(path: Path) -> bool:
    """Return whether a folder is a view, and not a log."""
    return (path / MANIFEST).is_file()


def read_view(
    spark: SparkSession,
    folder: Path,
    scope: Collection[str],
    identities: Iterable[HubIdentity],
) -> EventView:
    """Read the streams in scope from a view; its files are checked against the manifest first."""
    manifest = load_manifest(folder)
    if manifest is None:
        raise SparkSetupError(f"{folder} is not a view", action="name the folder of a view")
    named = [
        NamedFile(str(path_of(folder.absolute(), file)), file.size, bytes(file.hash))
        for file in manifest.files
        if file.stream in scope
    ]
    run(spark, check_files, group_by_size(named, lambda file: file.size, MAX_PARTITION_BYTES))
    reader = spark.read.schema(spark_type(VIEW_SCHEMA))
    paths = [file.path for file in named]
    frame = reader.parquet(*paths) if paths else spark.createDataFrame([], spark_type(VIEW_SCHEMA))
    return EventView(
        frame=frame,
        prefixes=tuple(prefix_of(s) for s in manifest.sources if s.stream in scope and s.own),
        homes={home.stream: home.hub_id for home in manifest.homes},
        identities={identity.hub_id: identity for identity in identities},
    )


def check_files(files: list[NamedFile]) -> list[None]:
    """Compare the files of one task with the manifest; raise ``DamagedViewError``."""
    for file in files:
        check_file(Path(file.path), file.size, FileHash(file.hash))
    return []
