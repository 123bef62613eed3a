"""The names in a data directory. Pure: paths are computed here, and nothing is opened.

VERSION               format version, and the hash of registry.cbor
registry.cbor         limits, profile and compression, fixed at creation
hub-identity.cbor     the hub's identity record (core §8.4), with hub-identity.sig and hub-key-map.cbor
hub-identity.next     the next content of these three files, while they are being replaced (hub_keys)
checkpoint-binding.cbor   binds checkpoints to hub and key (core §8.4)
keys/                 the hub's secret keys, mode 0600, unless the operator keeps them in another folder
lock                  a note of the process that has the directory open (directory_lock)
journal/              acknowledged batches that may not be applied yet
journal-kept/         applied journal segments that replicas may still need (commit.kept_segments)
handover.cbor         the hub's handover to its successor (veen_core.handover); it signs nothing after it
evidence/             what a replica was sent by a primary that contradicts it
log/                  chunks, summaries, peaks, checkpoints, checkpoint indices (core §4.8.3)
hublog/               the hub log (RESOLUTIONS P1): entries, checkpoint, published (ADR 0014)
attachments/          ciphertexts by content id (RESOLUTIONS H17)
fork.cbor             in a fork: the parent hub and the fork point, with fork-cuts.cborseq (copies.fork)
ancestry/             in a fork: the parent's data directory up to the fork, by the parent's hub_id
index/                LMDB; rebuildable from all of the above
views/realm-*/        the policy's view of its realm (view_store); rebuildable from the logs it follows
views/hub/            admin requests carried out, attachment quotas used (view_store); not rebuildable
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from veen_core import chunk, hub_export
from veen_core.ids import Coid, HubId, KeyId, Label, StreamSeq

HUB_LOG_ENTRIES: Final = hub_export.HUB_LOG_ENTRIES
HUB_LOG_CHECKPOINT: Final = hub_export.HUB_LOG_CHECKPOINT
HUB_LOG_PUBLISHED: Final = hub_export.HUB_LOG_PUBLISHED
"""The files of the hub log, as errors name them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one data directory."""

    root: Path

    @property
    def version(self) -> Path:
        return self.root / "VERSION"

    @property
    def registry(self) -> Path:
        return self.root / "registry.cbor"

    @property
    def identity(self) -> Path:
        return self.root / "hub-identity.cbor"

    @property
    def identity_signature(self) -> Path:
        return self.root / "hub-identity.sig"

    @property
    def key_map(self) -> Path:
        return self.root / "hub-key-map.cbor"

    @property
    def identity_next(self) -> Path:
        return self.root / "hub-identity.next"

    @property
    def checkpoint_binding(self) -> Path:
        return self.root / "checkpoint-binding.cbor"

    @property
    def keys(self) -> Path:
        return self.root / "keys"

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def journal(self) -> Path:
        return self.root / "journal"

    @property
    def kept_journal(self) -> Path:
        return self.root / "journal-kept"

    @property
    def handover(self) -> Path:
        return self.root / "handover.cbor"

    @property
    def evidence(self) -> Path:
        return self.root / "evidence"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def hub_log(self) -> Path:
        return self.root / "hublog"

    @property
    def hub_log_entries(self) -> Path:
        """All entries of the hub log, each with its length: its entry bundles, concatenated."""
        return self.root / HUB_LOG_ENTRIES

    @property
    def hub_log_checkpoint(self) -> Path:
        """The newest hub checkpoint."""
        return self.root / HUB_LOG_CHECKPOINT

    @property
    def hub_log_published(self) -> Path:
        """The hub checkpoint that is served, with its cosignatures."""
        return self.root / HUB_LOG_PUBLISHED

    @property
    def attachments(self) -> Path:
        return self.root / "attachments"

    @property
    def index(self) -> Path:
        return self.root / "index"

    def view(self, name: str) -> Path:
        return self.root / "views" / name

    @property
    def fork(self) -> Path:
        return self.root / "fork.cbor"

    @property
    def fork_cuts(self) -> Path:
        return self.root / "fork-cuts.cborseq"

    @property
    def ancestry(self) -> Path:
        return self.root / "ancestry"

    def ancestor(self, hub: HubId) -> Path:
        return self.ancestry / hub.hex()

    def key(self, key_id: KeyId) -> Path:
        return self.keys / f"hub-{key_id.hex()}.key"

    def chunk(self, label: Label, start: StreamSeq, end: StreamSeq | None) -> Path:
        return self.log / chunk.chunk_name(label, start, end)

    def summary(self, label: Label, start: StreamSeq, end: StreamSeq) -> Path:
        return self.log / chunk.summary_name(label, start, end)

    def pruned(self, label: Label, start: StreamSeq, end: StreamSeq) -> Path:
        return self.log / chunk.pruned_name(label, start, end)

    def peaks(self, label: Label, upto: StreamSeq) -> Path:
        return self.log / chunk.peaks_name(label, upto)

    def checkpoint(self, label: Label, upto: StreamSeq) -> Path:
        return self.log / chunk.checkpoint_name(label, upto)

    def checkpoint_index(self, label: Label) -> Path:
        return self.log / chunk.checkpoint_index_name(label)

    def anchor(self, label: Label, upto: StreamSeq) -> Path:
        """Path of the anchor record next to its checkpoint (ANCHOR0.2)."""
        return self.log / f"anchor-{label.hex()}-{upto:0{chunk.SEQ_WIDTH}d}.cbor"

    def attachment(self, coid: Coid) -> Path:
        """Path of an attachment, in two levels of folders: a file system slows down with huge folders."""
        name = coid.hex()
        return self.attachments / name[:2] / name[2:4] / name

    def directories(self) -> tuple[Path, ...]:
        return (self.journal, self.log, self.hub_log, self.attachments, self.index)
