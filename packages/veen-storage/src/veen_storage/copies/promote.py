"""Promote: make the successor of a hub from its replica (RESOLUTIONS P9, ADR 0007, ADR 0019).

A successor is a fork: a hub with a key, labels and a hub log of its own, and the old hub's log in
``ancestry/``. No hub continues a label under another key.

- Planned: the old hub's ``handover`` names the successor and the last hub checkpoint. The replica must have
  exactly that point: the same hub checkpoint, no entry after it, and every attachment. The record goes into
  the ancestor's directory. Nothing is lost, and anyone can verify it.
- Unplanned: the fork is made from what the replica has. ``lost_receipts`` finds what is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veen_core import handover as handovers
from veen_core import hub_identity, stream
from veen_core.errors import DecodeError, SignatureError
from veen_core.handover import Handover
from veen_core.ids import HubId, HubPk, StreamSeq, UnixTime, VerifyKey
from veen_core.keys import SigningKey
from veen_core.receipt import Receipt
from veen_storage.copies.clone import ReportProgress
from veen_storage.copies.fork import fork
from veen_storage.copies.fork_record import Fork, ancestors
from veen_storage.disk import hub_keys
from veen_storage.disk.files import Files
from veen_storage.disk.hub_keys import KeyFile
from veen_storage.disk.layout import Layout
from veen_storage.errors import AbsentError, StorageError, read_file
from veen_storage.opening.observer import Source, open_source


def make_successor_key(directory: Path, key: SigningKey, files: Files | None = None) -> HubId:
    """Write the first key of a successor into a folder, and return the hub_id that it will have."""
    if directory.is_dir() and (held := list(directory.glob("hub-*.key"))):
        raise StorageError(f"{directory} has a key already: {held[0].name}", action="name an empty folder")
    hub_keys.write_key(files or Files(), directory, key)
    return stream.hub_id(HubPk(key.public))


def read_successor_key(directory: Path) -> SigningKey:
    """Read the one key of a folder that ``make_successor_key`` made."""
    found = sorted(directory.glob("hub-*.key")) if directory.is_dir() else []
    if len(found) != 1:
        raise StorageError(
            f"{directory} has {len(found)} hub keys, not one", action="make it with `veen hub successor`"
        )
    try:
        stored = KeyFile.decode(read_file(found[0]))
    except DecodeError:
        raise StorageError(f"{found[0]} is not a hub key file") from None
    key = SigningKey(stored.seed)
    if key.public != stored.hub_pk:
        raise StorageError(f"{found[0]} is damaged: its key is not the one that it names")
    return key


def promote(
    replica: Path,
    target: Path,
    new_key: SigningKey,
    now: UnixTime,
    *,
    handover: Handover | None,
    admin_pk: VerifyKey | None = None,
    progress: ReportProgress = lambda _done, _all: None,
    files: Files | None = None,
) -> Fork:
    """Create the successor at ``target``; a ``handover`` names the point at which the replica must be."""
    files = files or Files()
    if handover is not None:
        if stream.hub_id(HubPk(new_key.public)) != handover.new_hub:
            raise StorageError(
                f"the handover names hub {handover.new_hub.hex()}, and this key is another hub's",
                action="use the key whose hub_id was given to `veen hub handover`",
            )
        with open_source(replica) as store:
            check_handover_point(store, handover)
    record = fork(replica, target, new_key, now, admin_pk=admin_pk, progress=progress, files=files)
    if handover is not None:
        ancestor = Layout(target).ancestor(handover.old_hub)
        files.replace(Layout(ancestor).handover, handover.encode())
        with open_source(ancestor) as copied:  # the copy must have what was checked
            check_handover_point(copied, handover)
    return record


def check_handover_point(store: Source, handover: Handover) -> None:
    """Raise unless the directory has exactly what the old hub had when it handed over."""
    held = store.hub_log.checkpoint
    origin = held.head.origin if held is not None else None
    signed = handovers.verify_handover(handover, store.identity, origin=origin)
    size = held.head.size if held is not None else 0
    if size < signed.head.size:
        raise StorageError(
            f"the replica has {size} entries of the hub log, and the handover names {signed.head.size}",
            action="wait until the replica has caught up, then promote it again",
        )
    if held is None or held.head != signed.head or store.hub_log.moved:
        raise StorageError("the replica has entries that are not covered by the handover's hub checkpoint")
    coids = list(store.attachments.coids())
    if (len(coids), handovers.attachments_hash(coids)) != (handover.attachments, handover.attachments_hash):
        raise StorageError(
            f"the replica has {len(coids)} attachments, and the handover names {handover.attachments}",
            action="wait until the replica has copied all attachments, then promote it again",
        )


# --- what an unplanned cutover has lost

Fate = Literal["kept", "lost", "contradicted", "foreign"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptFate:
    """The fate of an acknowledged message: its receipt, and whether the successor's ancestor has it."""

    receipt: Receipt
    fate: Fate
    """``kept``: the ancestor has exactly this entry. ``lost``: the ancestor ends before it. ``contradicted``:
    the ancestor has another entry there, which convicts the old hub. ``foreign``: the old hub did not sign
    it."""
    upto_seq: StreamSeq
    """Where the ancestor's label ends; 0 if it has none."""


def lost_receipts(root: Path, receipts: Iterable[Receipt]) -> Iterator[ReceiptFate]:
    """Compare receipts of old hubs with the ancestors of a successor, or with a replica itself.

    A hub that was replaced more than once has several ancestors: the one that signed a receipt counts.
    """
    roots = [path for _record, path in ancestors(root)] or [root]
    with ExitStack() as stack:
        stores = [stack.enter_context(open_source(path)) for path in roots]
        for receipt in receipts:
            fates = (_fate(store, receipt) for store in stores)
            nearest = next(fates)
            found = (fate for fate in (nearest, *fates) if fate.fate != "foreign")
            yield next(found, nearest)


def _fate(store: Source, receipt: Receipt) -> ReceiptFate:
    head = store.read.head(receipt.label)
    upto = head.stream_seq if head is not None else StreamSeq(0)
    fate: Fate
    try:
        hub_identity.verify_receipt(store.identity, receipt)
    except SignatureError:
        fate = "foreign"
    else:
        fate = "lost"
        if receipt.stream_seq <= upto:
            try:
                fate = (
                    "kept"
                    if store.read.receipt(receipt.label, receipt.stream_seq) == receipt
                    else "contradicted"
                )
            except AbsentError:
                fate = "lost"
    return ReceiptFate(receipt=receipt, fate=fate, upto_seq=upto)
