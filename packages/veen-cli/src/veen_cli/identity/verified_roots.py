"""What an identity has verified of a hub's logs, read from its state folder (core §9 Resync, P1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from veen_cli.identity.hub_records import CheckedStateStore, label_records
from veen_cli.identity.identity_folder import Folder
from veen_core.client_state import ClientState
from veen_core.ids import HubId, Label, MmrRoot
from veen_core.mmr import peak_heights, root_of
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.hub_log.checkpoints import RECORD
from veen_hub.client.state.records import HubCheckpointRecord, decode_record


@dataclass(frozen=True, slots=True)
class KnownRoot:
    """A stated root of the first ``size`` entries of a label, and the source of the statement."""

    label: Label
    size: int
    root: MmrRoot
    source: str


@dataclass(frozen=True, slots=True)
class ClientKnowledge:
    """What a client has verified of one label before: roots, and the receipts it keeps."""

    client: str
    label: Label
    size: int
    """Entries that the client has verified."""
    roots: tuple[KnownRoot, ...]
    receipts: tuple[Receipt, ...]


def client_knowledge(folder: Folder, hub: HubId) -> Iterator[ClientKnowledge]:
    """Yield what the identity has verified of each label of a hub."""
    for record in label_records(folder, hub):
        state = record.state
        yield ClientKnowledge(
            client=str(folder.root),
            label=state.label,
            size=state.last_stream_seq,
            roots=tuple(_known_roots(state, str(folder.root))),
            receipts=(state.head,) if state.head is not None else (),
        )


def accepted_hub_checkpoint(folder: Folder, hub: HubId) -> SignedHead | None:
    """Return the largest hub checkpoint that the identity has accepted; None without a witness policy."""
    content = CheckedStateStore(folder.state).load(hub, RECORD)
    return decode_record(HubCheckpointRecord, content, RECORD).signed_head if content is not None else None


def _known_roots(state: ClientState, client: str) -> Iterator[KnownRoot]:
    """Yield every root that follows from a client's state.

    The peaks of a tree are also the peaks of the smaller trees that end with one of its peaks.
    """
    heights = peak_heights(state.last_stream_seq)  # increasing, as the peaks are
    for first in range(len(heights)):
        size = sum(1 << height for height in heights[first:])
        yield KnownRoot(state.label, size, root_of(state.peaks[first:]), f"what {client} has verified")
    if state.head is not None:
        source = f"the receipt that {client} holds"
        yield KnownRoot(state.label, state.head.stream_seq, state.head.mmr_root, source)
    if state.checkpoint is not None:
        source = f"the checkpoint that {client} holds"
        yield KnownRoot(state.label, state.checkpoint.upto_seq, state.checkpoint.mmr_root, source)
