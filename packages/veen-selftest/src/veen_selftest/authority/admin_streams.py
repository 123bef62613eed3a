"""The admin streams of a realm: every reader folds what the admin publishes, and only the admin writes."""

from __future__ import annotations

import asyncio
from typing import Final

from veen_core.hashing import H
from veen_core.ids import HubId, Label, SchemaId, StreamId, UnixTime
from veen_core.rejection import CAP_MISSING
from veen_hub.client import Identity, Refused, connect
from veen_overlays.control.records import (
    Authority,
    LabelClass,
    Revocation,
    RevokedId,
    SchemaDescriptor,
    admin_stream,
    label_class_stream,
    revocation_stream,
    schema_stream,
)
from veen_overlays.control.state import (
    AUTHORITIES,
    LABEL_CLASSES,
    REVOCATIONS,
    SCHEMAS,
    authority_at,
    class_of,
    revocation_at,
    schema_of,
)
from veen_overlays.identifiers import RealmId
from veen_overlays.schema.record import Record
from veen_selftest.hubs.http_hub import HttpHub
from veen_selftest.peers.overlay_reader import TTL_SEC, connected, folded, writable_hub
from veen_selftest.runner.check import Check, ClauseViolation, require, require_equal
from veen_selftest.runner.context import CheckContext


def _records(context: CheckContext) -> None:
    """Authorities, revocations, label classes and schemas that the admin publishes are folded by a reader."""
    asyncio.run(_publish_and_fold(context, writable_hub(context)))


async def _publish_and_fold(context: CheckContext, hub: HttpHub) -> None:
    realm, trust = RealmId(H(context.secret)), hub.known.identity.hub_id
    admin, stream = Identity.generate(context.rng.randbytes), StreamId(H(b"stream" + context.secret))
    label, schema = Label(H(b"label" + context.secret)), SchemaId(H(b"schema" + context.secret))
    async with connected(hub, admin) as writer:
        now = UnixTime((await writer.stream(context.stream_name("clock")).send("what time is it?")).hub_ts)
        target = RevokedId(H(b"client" + context.secret))
        published: tuple[tuple[StreamId, Record], ...] = (
            (admin_stream(realm), _authority(realm, stream, trust, now)),
            (revocation_stream(realm), Revocation(kind="client-id", target=target, ts=now)),
            (label_class_stream(realm), LabelClass(label=label, class_="admin")),
            (schema_stream(realm), SchemaDescriptor(schema_id_=schema, name="selftest", version="1", ts=now)),
        )
        for stream_id, record in published:
            await writer.stream(stream_id.hex()).send(record.encode(), schema=record.schema_id)
    async with connected(hub, admin) as reader:
        authorities = await folded(reader, admin_stream(realm).hex(), AUTHORITIES, admin.dh_keys)
        found = authority_at(authorities, realm, stream, now)
        require(
            found is not None and found.primary_hub == trust, "the stream's primary is not what was published"
        )
        revocations = await folded(reader, revocation_stream(realm).hex(), REVOCATIONS, admin.dh_keys)
        require(revocation_at(revocations, "client-id", target, now), "a published revocation is missing")
        classes = await folded(reader, label_class_stream(realm).hex(), LABEL_CLASSES, admin.dh_keys)
        classified = class_of(classes, label)
        require_equal(classified and classified.class_, "admin", "the class of a label")
        schemas = await folded(reader, schema_stream(realm).hex(), SCHEMAS, admin.dh_keys)
        described = schema_of(schemas, schema)
        require_equal(described and described.name, "selftest", "the name of a schema")


def _authority(realm: RealmId, stream: StreamId, hub: HubId, now: UnixTime) -> Authority:
    return Authority(
        realm_id=realm,
        stream_id=stream,
        primary_hub=hub,
        replica_hubs=(),
        policy="single-primary",
        ts=now,
        ttl=TTL_SEC,
    )


def _closed(context: CheckContext) -> None:
    """A client without a token cannot write to an admin stream (spec-2 1.3, H20)."""
    hub = context.hub()
    if not hub.known.gating:
        raise ClauseViolation("the hub is open: anyone who reaches its port may revoke clients (H20)")
    asyncio.run(_write_as_stranger(context, hub))


async def _write_as_stranger(context: CheckContext, hub: HttpHub) -> None:
    realm = RealmId(H(context.secret))
    stranger = Identity.generate(context.rng.randbytes)
    async with connect(hub.url, stranger, trust=hub.known.identity.hub_id, tls=hub.tls) as writer:
        for stream_id in (admin_stream(realm), revocation_stream(realm), label_class_stream(realm)):
            try:
                await writer.stream(stream_id.hex()).send("let me in")
            except Refused as refused:
                require_equal(refused.detail_enum, CAP_MISSING.detail, "why a stranger is refused")
            else:
                raise ClauseViolation("a stranger without a token wrote to an admin stream")


CHECKS: Final = (
    Check("authority.records", "spec-2 1.3 to 7.1", _records),
    Check("authority.closed", "spec-2 1.3, H20", _closed),
)
