"""Files of evidence: what a third party verifies offline with ``veen verify``."""

from __future__ import annotations

import dataclasses
from hashlib import sha256
from pathlib import Path

from veen_core import hub_fork
from veen_core.hub_fork import HubLogFork
from veen_core.ids import HubId
from veen_hub.monitor.findings import Evidence, OpenFinding
from veen_storage import Files


class EvidenceFiles:
    """The folder for files of evidence, which is made when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, hub_id: HubId, found: OpenFinding) -> OpenFinding:
        """Write the evidence of a finding durably, and return the finding with its file.

        The evidence is verified once more: nothing that ``veen verify`` would refuse is ever written.
        """
        evidence = found.finding.evidence
        if evidence is None:
            return found
        verify(evidence, hub_id)
        content = evidence.encode()
        name = f"{found.finding.key}-{hub_id.hex()[:12]}-{sha256(content).hexdigest()[:12]}.cbor"
        files = Files()
        files.make_directories(self.folder)
        files.replace(self.folder / name, content)
        return dataclasses.replace(found, file=self.folder / name)


def verify(evidence: Evidence, hub_id: HubId) -> None:
    """Raise ``EvidenceError`` unless the evidence convicts this hub."""
    if isinstance(evidence, HubLogFork):
        hub_fork.verify_hub_log_fork(evidence, pinned=hub_id)
    else:
        hub_fork.verify_label_fork(evidence, pinned=hub_id)
