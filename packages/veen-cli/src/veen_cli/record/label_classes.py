"""Publish the label classes of recorder streams, with retention long_term (SDR0 3.2.2, LCLASS0)."""

from __future__ import annotations

from typing import Final

from veen_cli.record.session import RecordedLabel, RecorderSession
from veen_overlays import MemoryStore
from veen_overlays.control.records import LabelClass, label_class_stream
from veen_overlays.control.state import LABEL_CLASSES, class_of
from veen_overlays.identifiers import realm_id
from veen_overlays.live import EpochView, Materializer
from veen_overlays.recorder.profile import LONG_TERM_SEC, RECORD_CLASS
from veen_overlays.recorder.roles import ADMIN

LONG_TERM: Final = "long_term"


def wanted_class(label: RecordedLabel) -> LabelClass:
    """Return the class record that a recorder label must have."""
    return LabelClass(label=label.label, class_=RECORD_CLASS, retention_hint=LONG_TERM_SEC)


async def publish_classes(session: RecorderSession) -> list[RecordedLabel]:
    """Publish the class of every label that has none yet; return those that were published."""
    profile, hub = session.profile, session.hub
    if profile.realm is None:
        return []
    stream_id = label_class_stream(realm_id(profile.realm))
    recipient = session.file.role.realm_recipient
    stream = hub.stream(stream_id.hex(), to=recipient)
    epochs, reader, store = hub.epoch_labels(stream_id), hub.log_reader(), MemoryStore()
    view = (
        Materializer(LABEL_CLASSES, stream.label(), reader, key=session.keys, store=store)
        if epochs is None
        else EpochView(LABEL_CLASSES, epochs, reader, key=session.keys, store=store)
    )
    await view.open()
    await view.catch_up()
    state = (await view.state()).summary.inner
    published = []
    for label in await session.labels(profile.all_streams, may_be_new=True):
        wanted = wanted_class(label)
        if class_of(state, label.label) != wanted:
            await stream.send(wanted)
            published.append(label)
    return published


async def publish_classes_of_new_epochs(session: RecorderSession) -> None:
    """Publish the classes of labels that are new since the last call, at a hub with epochs (core §12).

    Only recorder_admin may publish them. At a hub without epochs, ``veen record init`` has published all.
    """
    realm = session.profile.realm
    if session.file.role.role != ADMIN or realm is None:
        return
    if session.hub.epoch_labels(label_class_stream(realm_id(realm))) is not None:
        await publish_classes(session)
