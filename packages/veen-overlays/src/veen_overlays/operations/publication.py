"""Data publications: which content a publisher bound to a version, and when (spec-3 §6).

A publication counts if its publisher, or a key linked to the publisher, has signed it. Of several
publications of one version the first counts; the state lists every later one with the reason why it is
refused (P1). A publication with another signer does not take the version away from its publisher.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from veen_core.hashing import Ht
from veen_core.ids import FixedBytes
from veen_overlays.fold.event import Event, Message
from veen_overlays.fold.monoid import FIRST_COUNTED, CountedValue, Monoid, map_of, product
from veen_overlays.fold.overlay import Overlay
from veen_overlays.fold.table import ColumnType, table_of_maps
from veen_overlays.operations.content_root import ContentRoot
from veen_overlays.operations.frequent_record import Groups, bulk_fold
from veen_overlays.operations.key_links import (
    KEY_LINKS,
    lift_link,
    signs_for,
    split_signer,
    take_link,
    with_signer,
)
from veen_overlays.operations.operation import IdentityId, operation, sorted_set
from veen_overlays.recorder.records import KeyContinuity
from veen_overlays.schema.pattern import is_free, is_set, is_text, string_content
from veen_overlays.schema.record import Record, RecordRule, plain_fields


class PublicationId(FixedBytes):
    """The stable id of a published object, such as a model or a dataset (spec-3 6.2)."""

    __slots__ = ()


def publication_id(name: str) -> PublicationId:
    """``Ht("veen/publication", name)``: the id of an object that consumers know by a name."""
    return PublicationId(Ht("veen/publication", name.encode()))


@operation(
    "data.publication.v1",
    section="spec-3 6.2",
    rules=(RecordRule("version is not empty", lambda r: bool(r.version)), sorted_set("labels")),
)
@dataclass(frozen=True, slots=True, kw_only=True)
class DataPublication(Record):
    """Bind the content of an object's version to a point in the log."""

    publication_id: PublicationId
    publisher_identity: IdentityId
    content_root: ContentRoot
    content_class: str
    version: str
    labels: tuple[str, ...] | None = None
    source_uri: str | None = None
    metadata: Any | None = None


# --- the summary of a range

PublicationState = Mapping[str, Any]

PUBLICATION_MONOID: Final[Monoid[PublicationState]] = product(
    links=KEY_LINKS, publications=map_of(FIRST_COUNTED)
)
"""Publications by object, version, publisher, signer and content: a repetition only increases a count."""


def _lift(event: Event) -> PublicationState:
    record = event.record
    if isinstance(record, KeyContinuity):
        return lift_link(event)
    assert isinstance(record, DataPublication)
    fixed = record.publication_id + record.publisher_identity + record.content_root
    signer = event.client_id or b""
    key = fixed + bytes([len(signer)]) + signer + record.version.encode()
    return {"publications": {key: (event.seq, event.identity, with_signer(event), 1)}}


def _add(found: dict[bytes, Any], groups: Groups, message: Message, identity: bytes) -> bool:
    publication, publisher, root, class_, version, labels, source, metadata = groups
    if not (labels is None or is_set(labels)) or not (metadata is None or is_free(metadata)):
        return False
    word = string_content(version)
    if not word or not (is_text(version) and is_text(class_) and (source is None or is_text(source))):
        return False
    seq, _, _, body, _, client_id, _ = message
    signer = client_id or b""
    head = bytes([len(signer)]) + signer
    key = publication + publisher + root + head + word
    held = seq, identity, head + body, 1
    found[key] = FIRST_COUNTED.combine(found[key], held) if key in found else held
    return True


# --- the meaning of a prefix


class Publication(NamedTuple):
    """A publication in the log, and why it is refused, if it is."""

    seq: int
    """The first message that publishes this content."""
    body: bytes
    """The canonical bytes of the publication."""
    fields: dict[str, Any]
    """Its fields as plain values."""
    published: int
    """How often the same content was published by the same key."""
    refused: str | None

    @property
    def record(self) -> DataPublication:
        """The publication."""
        return DataPublication.decode(self.body)


def publications_of(state: PublicationState) -> list[Publication]:
    """All publications in the order of the stream."""
    links = state.get("links", {})
    held: Iterable[CountedValue | None] = state.get("publications", {}).values()
    counting: dict[tuple[bytes, str], int] = {}
    found = []
    for seq, _, content, published in sorted(filter(None, held)):
        signer, body = split_signer(content)
        fields = plain_fields(body)
        refused = None
        if not signs_for(links, fields["publisher_identity"], signer, seq):
            refused = "its publisher has not signed it"
        elif (first := counting.setdefault((fields["publication_id"], fields["version"]), seq)) != seq:
            refused = f"message {first} has published this version (P1)"
        found.append(Publication(seq, body, fields, published, refused))
    return found


class SurvivorRule(enum.StrEnum):
    """Which of several versions a consumer takes (P2)."""

    HIGHEST = "highest"
    """The highest version, see ``version_order``."""
    LATEST = "latest"
    """The latest in stream order."""


_DIGITS: Final = re.compile(r"(\d+)", re.ASCII)
_PRE_RELEASE: Final = re.compile(r"-[a-z]|~|[-._ ]?(alpha|beta|dev|pre|preview|rc)(?![a-z])", re.IGNORECASE)
_PRE_RELEASE_LETTER: Final = re.compile(r"[abc]", re.IGNORECASE)


def version_order(version: str) -> list[tuple[int, str]]:
    """The sort key of a version.

    Runs of digits compare as numbers: ``v1.10`` is higher than ``v1.9``. A suffix that starts with a hyphen
    and a letter, or with ``alpha``, ``beta``, ``dev``, ``pre``, ``preview`` or ``rc``, names a pre-release,
    which is lower: ``v1.0-rc1`` and ``v1.0rc1`` are lower than ``v1.0``. A suffix that starts with ``~``
    names one too, and so does a single ``a``, ``b`` or ``c`` between two numbers, as in ``1.0b2``. Any other
    suffix makes a version higher: ``v1.0.1`` is higher than ``v1.0``. A ``v`` before a number does not count.
    """
    parts = _DIGITS.split(re.sub(r"^[vV](?=\d)", "", version))
    order = []
    for n, part in enumerate(parts):
        if n % 2:
            number = part.lstrip("0")
            order.append((len(number), number))  # by length, then by digits: a number of any length
        elif n and not part:
            order.append((1, ""))  # the end: higher than a pre-release, lower than any other suffix
        else:
            numbered = n < len(parts) - 1 and _PRE_RELEASE_LETTER.fullmatch(part)
            is_pre_release = n and (numbered or _PRE_RELEASE.match(part))
            order.append((0, part.lower()) if is_pre_release else (2, part))
    return order


def survivor(publications: Iterable[Publication], rule: SurvivorRule) -> Publication | None:
    """The publication that a consumer takes; refused ones never survive (P2)."""
    valid = [each for each in publications if each.refused is None]
    if rule is SurvivorRule.LATEST:
        return max(valid, key=lambda each: each.seq, default=None)
    return max(valid, key=lambda each: (version_order(each.record.version), each.seq), default=None)


# --- the overlay


def _view(state: PublicationState) -> list[Any]:
    rows = []
    for seq, _, row, published, refused in publications_of(state):
        row["seq"], row["published"] = seq, published
        if refused is not None:
            row["refused"] = refused
        rows.append(row)
    return rows


PUBLICATIONS: Final[Overlay[PublicationState]] = Overlay(
    name="operation.publications",
    title="Published content by object and version; refused publications say why (spec-3 §6).",
    schemas=(DataPublication, KeyContinuity),
    monoid=PUBLICATION_MONOID,
    lift=_lift,
    view=_view,
    bulk=bulk_fold(
        {DataPublication: _add, KeyContinuity: take_link},
        part="publications",
        lift=_lift,
        monoid=PUBLICATION_MONOID,
    ),
    reads_signer=True,
    table=table_of_maps(
        {
            "publication_id": ColumnType.BYTES,
            "version": ColumnType.TEXT,
            "publisher_identity": ColumnType.BYTES,
            "content_root": ColumnType.BYTES,
            "content_class": ColumnType.TEXT,
            "labels": ColumnType.JSON,
            "source_uri": ColumnType.TEXT,
            "seq": ColumnType.UINT,
            "published": ColumnType.UINT,
            "refused": ColumnType.TEXT,
        }
    ),
)
