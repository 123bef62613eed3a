"""Evidence against a primary that contradicts its replica (RESOLUTIONS P9, spec-1 §14).

Two RECEIPTs of one key for the same place with different roots convict the hub. They are looked for where the
contradiction showed, and otherwise at the heads of the labels. If there are none, the primary is only behind:
an old copy of it was started, and it has not yet signed anything else.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from veen_core import hub_identity
from veen_core.equivocation import Equivocation, Statement, evidence_of
from veen_core.errors import EvidenceError, SignatureError, VeenError
from veen_core.ids import StreamSeq
from veen_core.receipt import Receipt
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.replica.primary import Primary
from veen_storage import AbsentError, Files, Store

MAX_COMPARED_LABELS: Final = 4_096
"""Labels whose heads are compared to find evidence."""


class DivergedPrimaryError(VeenError):
    """The primary has another history than its replica. ``refused`` is the RECEIPT that shows it, if any."""

    def __init__(self, why: str, refused: Receipt | None = None, batch: bytes | None = None) -> None:
        super().__init__(
            why,
            action="stop the primary and keep both data directories (docs/guides/replica-and-cutover.md)",
        )
        self.refused = refused
        self.batch = batch


@dataclass(frozen=True, slots=True)
class Divergence:
    """Finds and keeps evidence; used from the event loop."""

    store: Store
    access: LogAccess
    primary: Primary

    async def record(self, error: DivergedPrimaryError) -> list[Path]:
        """Write what is found to ``evidence/``, and return the files."""
        found = None
        if error.refused is not None:
            found = await self.access.read(lambda: self.against(error.refused))  # type: ignore[arg-type]
        if found is None:
            found = await self._compare_heads()
        return await self.access.read(lambda: self._write(found, error.batch))

    def against(self, theirs: Receipt) -> Equivocation | None:
        """Return the evidence that a RECEIPT of the primary and this replica's log give together, if any."""
        try:
            ours = self.store.read.receipt(theirs.label, theirs.stream_seq)
            return evidence_of(self._statement(ours), self._statement(theirs))
        except (AbsentError, EvidenceError, SignatureError):
            return None

    def _statement(self, receipt: Receipt) -> Statement:
        key = hub_identity.verify_receipt(self.store.identity, receipt)
        return Statement(hub_pk=key.hub_pk, receipt=receipt)

    async def _compare_heads(self) -> Equivocation | None:
        labels = await self.access.read(
            lambda: list(islice(self.store.read.all_labels(), MAX_COMPARED_LABELS))
        )
        for label in labels:
            head = await self.access.read(lambda label=label: self.store.read.head(label))  # type: ignore[misc]
            try:
                theirs = await self.primary.newest_receipt(label)
                if theirs is not None and head is not None and theirs.stream_seq > head.stream_seq:
                    theirs = await self.primary.receipt(label, StreamSeq(head.stream_seq))
            except VeenError:
                return None
            if theirs is None:
                continue
            if (found := await self.access.read(lambda r=theirs: self.against(r))) is not None:  # type: ignore[misc]
                return found
        return None

    def _write(self, found: Equivocation | None, batch: bytes | None) -> list[Path]:
        folder, files = self.store.layout.evidence, Files()
        if found is None and batch is None:
            return []
        files.make_directories(folder)
        written = []
        if found is not None:
            receipt = found.first.receipt
            path = folder / f"equivocation-{receipt.label.hex()}-{receipt.stream_seq}.cbor"
            files.replace(path, found.encode())
            written.append(path)
        if batch is not None:
            path = folder / f"refused-after-{self.store.last_batch}.wal"
            files.replace(path, batch)
            written.append(path)
        return written
