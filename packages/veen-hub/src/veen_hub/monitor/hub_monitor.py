"""The monitor of one hub: one round asks everything and settles every check (RESOLUTIONS P1-P3).

1. The witnesses are asked for their newest cosigned checkpoints, before the hub is: what they have
   cosigned by then, the hub must show, at once or within the grace period.
2. The hub's checkpoint is fetched, its signature verified, and compared with the largest one held.
3. What witnesses, clients and other addresses have seen is compared with it.
4. Quorum and age of its cosignatures are compared with the policy.
5. New entries of the hub log are read, and each label's heads are proved to extend each other.
6. Receipts of clients are proved to be below the heads of their labels.

A check that could not be made to its end settles nothing: what it found before stays open.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from veen_core import hub_log
from veen_core.errors import QuorumError, SignatureError, VerificationError
from veen_core.ids import UnixTime
from veen_core.tlog.note import NoteKey, cosigned_at, verified_signatures
from veen_core.tlog.policy import PolicyWitness, WitnessPolicy
from veen_core.tlog.tree_head import SignedHead
from veen_hub.client.errors import Misbehaved, Refused, Unreachable
from veen_hub.monitor.checkpoint_checks import CheckpointChecks, check_signature
from veen_hub.monitor.evidence_files import EvidenceFiles
from veen_hub.monitor.findings import ENTRIES, Finding, FindingChange, Key, OpenFinding, OpenFindings
from veen_hub.monitor.hub_identification import HubTrust, identify
from veen_hub.monitor.hub_source import HubSource, LogTiles, Withheld
from veen_hub.monitor.label_checks import LabelChecks
from veen_hub.monitor.label_proofs import LabelProofs
from veen_hub.monitor.memory import HubMemory, write_to_end
from veen_hub.monitor.receipt_checks import ReceiptChecks
from veen_hub.monitor.sightings import Seen, SeenBy, SeenCheckpoint
from veen_hub.monitor.witness_source import WitnessSource

PROOFS: Final = "proofs"
"""Name of the check whose findings end when the hub gives the proof after all."""
DEFAULT_GRACE_SEC: Final = 30.0
"""Seconds a hub may take to publish entries it has acknowledged, or a checkpoint that witnesses cosigned."""
MAX_OVERRUN_SEC: Final = 60.0
"""How long a round may take after the time at which it stops reading entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorSettings:
    """The settings that all hubs of a monitor share."""

    trust: HubTrust
    evidence: EvidenceFiles
    grace_sec: float = DEFAULT_GRACE_SEC
    now: Callable[[], UnixTime] = lambda: UnixTime(int(time.time()))

    @property
    def policy(self) -> WitnessPolicy | None:
        return self.trust.policy


@dataclass(slots=True)
class MonitorProgress:
    """The latest observations of a hub, for metrics and summaries."""

    shown: SignedHead | None = None
    """The hub checkpoint that the hub showed in the last round."""
    cosigned: dict[str, UnixTime] = field(default_factory=dict)
    """Times of the witnesses' cosignatures on ``shown``."""
    completed_at: UnixTime | None = None
    """When the last complete round ended: one in which the hub answered every request."""
    rounds: int = 0


class HubMonitor:
    """Watches the hub at one address."""

    def __init__(
        self,
        source: HubSource,
        witnesses: WitnessSource,
        memory: HubMemory,
        settings: MonitorSettings,
        report: Callable[[HubMonitor, FindingChange], None],
    ) -> None:
        self.source = source
        self.memory = memory
        self.settings = settings
        self.progress = MonitorProgress()
        self.findings = OpenFindings(self._keep, lambda change: report(self, change))
        self.findings.restore(memory.findings())
        self._witnesses = witnesses
        self.is_identified = False
        self._tiles = LogTiles(source)
        proofs = LabelProofs(source)
        self._checkpoints = CheckpointChecks(memory, self._tiles, settings.grace_sec)
        self._labels = LabelChecks(memory, self._tiles, proofs, self._report_entry)
        self.receipts = ReceiptChecks(memory, self._tiles, proofs, settings.grace_sec)

    @property
    def url(self) -> str:
        return self.source.url

    @property
    def is_waiting(self) -> bool:
        """Whether the hub must still publish something within the grace period."""
        return self._checkpoints.is_waiting or self.receipts.is_waiting

    def sighting(self) -> SeenCheckpoint | None:
        """Return the largest checkpoint of this address, for the monitors of other addresses."""
        held = self.memory.held
        return SeenCheckpoint(held, SeenBy.ADDRESS, self.url) if held is not None else None

    def _keep(self, found: OpenFinding) -> OpenFinding:
        """Write the evidence of a permanent finding, then remember the finding."""
        found = self.settings.evidence.write(self.memory.known.identity.hub_id, found)
        self.memory.keep(found)
        return found

    # --- rounds

    async def round(self, seen: Seen, others: Sequence[SeenCheckpoint], until: float | None = None) -> None:
        """Make every check once; entries of the hub log only until a time on the monotonic clock.

        A round that is not done ``MAX_OVERRUN_SEC`` after that time ends, because other hubs wait for it.
        """
        self.findings.keep_all()
        left = until + MAX_OVERRUN_SEC - time.monotonic() if until is not None else None
        try:
            async with asyncio.timeout(left):
                await self._round(seen, others, until)
        except (Unreachable, Refused) as exc:
            finding = Finding(key=Key.UNREACHABLE, message=f"the hub does not answer: {exc.message}")
            self._settle("reach", [finding])
        except TimeoutError:
            message = f"the hub answers too slowly: a round was not done after {left:.0f} s"
            self._settle("reach", [Finding(key=Key.UNREACHABLE, message=message)])
        else:
            self._settle("reach", [])
            self.progress.completed_at = self.settings.now()
        self.progress.rounds += 1

    def _settle(self, check: str, found: Sequence[Finding]) -> None:
        self.findings.settle(check, found, self.settings.now())

    async def _round(self, seen: Seen, others: Sequence[SeenCheckpoint], until: float | None) -> None:
        if not await self._identify():
            return
        cosigned = await self._ask_witnesses()
        try:
            shown = await self._fetch_checkpoint()
        except (SignatureError, Misbehaved) as exc:
            self._settle("signature", [Finding(key=Key.INVALID, message=exc.message)])
            return
        self._settle("signature", [])
        self.progress.shown = shown
        is_sound = await self._compare_shown(shown)
        self._settle("others", await self._checkpoints.check_others([*cosigned, *seen.checkpoints, *others]))
        if shown is not None:
            self._check_quorum(shown)
        if is_sound:
            await self._follow(until)
        self._settle("receipts", await self.receipts.check(seen.receipts))

    # --- the hub

    async def _identify(self) -> bool:
        """Ask who the hub is, because it may have gained keys; return whether it is the hub to monitor."""
        try:
            status = await self.source.status()
            record = identify(self.url, status, self.memory.record, self.settings.trust)
        except VerificationError as exc:
            self._settle("identity", [Finding(key=Key.INVALID, subject="identity", message=str(exc))])
            return False
        if record != self.memory.record:
            await write_to_end(self.memory.save, record)
        self._settle("identity", [])
        self.is_identified = True
        return True

    async def _fetch_checkpoint(self) -> SignedHead | None:
        """Fetch the hub checkpoint and verify its signature."""
        shown = await self.source.checkpoint()
        if shown is None:
            return None
        try:
            check_signature(self.memory, shown)
        except SignatureError:
            if not await self._identify():  # it has gained a key since the round began
                raise
            check_signature(self.memory, shown)
        return shown

    async def _compare_shown(self, shown: SignedHead | None) -> bool:
        """Compare the hub checkpoint with the one held, and hold it if it extends that one."""
        found = await self._checkpoints.check_shown(shown)
        self._settle("checkpoint", found)
        if found or shown is None:
            return False
        await write_to_end(self.memory.hold, shown, self._quorum_at(shown))
        return True

    def _quorum_at(self, shown: SignedHead) -> UnixTime | None:
        """Return since when a quorum has cosigned a hub checkpoint; None if none has."""
        policy = self.settings.policy
        try:
            return policy.check(shown, log_keys=self._log_keys()).quorum_at if policy is not None else None
        except (QuorumError, SignatureError):
            return None

    def _log_keys(self) -> list[NoteKey]:
        known = self.memory.known
        return hub_log.note_keys(known.identity, known.origin)

    # --- witnesses

    async def _ask_witnesses(self) -> list[SeenCheckpoint]:
        """Return the checkpoints that witnesses have cosigned, and those they keep as contradictions."""
        policy = self.settings.policy
        asked = [witness for witness in policy.witnesses if witness.url] if policy is not None else []
        answers = await asyncio.gather(*map(self._ask_witness, asked))
        self._settle("witnesses", [finding for _seen, found in answers for finding in found])
        return [each for seen, _found in answers for each in seen]

    async def _ask_witness(self, witness: PolicyWitness) -> tuple[list[SeenCheckpoint], list[Finding]]:
        name, origin = _shown(witness), self.memory.known.origin
        before = self._cosigned_size(witness)
        try:
            newest = await self._witnesses.newest(witness, origin)
            kept = await self._witnesses.contradictions(witness, origin)
        except Unreachable as exc:
            message = f"witness {name} does not answer: {exc.message}"
            return [], [Finding(key=Key.UNREACHABLE, subject=f"witness {name}", message=message)]
        except VerificationError as exc:
            return [], [Finding(key=Key.INVALID, subject=f"witness {name}", message=exc.message)]
        found: list[Finding] = []
        if newest is not None and newest.head.size < before:
            found.append(
                Finding(
                    key=Key.COSIGNATURES_DISAGREE,
                    subject=f"witness {name}",
                    message=f"witness {name} says that it last cosigned {newest.head.size} entries, but the "
                    f"hub has its cosignature of {before} entries: the witness has lost its memory",
                )
            )
        heads = [*([newest] if newest is not None else []), *kept]
        return [SeenCheckpoint(signed, SeenBy.WITNESS, name) for signed in heads], found

    def _cosigned_size(self, witness: PolicyWitness) -> int:
        """Return the size of the checkpoint held, if this witness has cosigned it."""
        held = self.memory.held
        if held is None:
            return 0
        try:
            return held.head.size if verified_signatures(held.note, [witness.key]) else 0
        except SignatureError:
            return 0

    def _check_quorum(self, shown: SignedHead) -> None:
        """Compare the cosignatures of the hub checkpoint with the policy (P2)."""
        policy, now = self.settings.policy, self.settings.now()
        if policy is None:
            return
        self.progress.cosigned = _cosigned_times(shown, policy)
        found: list[Finding] = []
        try:
            policy.check_age(policy.check(shown, log_keys=self._log_keys()), now)
        except SignatureError as exc:
            found = [Finding(key=Key.INVALID, subject="cosignatures", message=exc.message)]
        except QuorumError as exc:
            # Missing cosignatures may still come, as long as the last quorum is young enough.
            quorum_at = self.memory.known.quorum_at
            if quorum_at is None or abs(now - quorum_at) > policy.max_age_sec:
                names = [each.name for each in policy.witnesses if _shown(each) in self.progress.cosigned]
                key = Key.STALE if policy.is_quorum(names) else Key.NO_QUORUM
                found = [Finding(key=key, message=exc.message)]
        self._settle("quorum", found)

    # --- labels

    async def _follow(self, until: float | None) -> None:
        """Check new entries of the hub log, and ask again for proofs that the hub did not give before."""
        held = self.memory.held
        assert held is not None
        try:
            found, asked = await self._labels.repeat_unproven(held)
            self.findings.settle(PROOFS, found, self.settings.now(), asked=asked)
            await self._labels.follow(held, until)
        except Withheld as exc:
            self._settle(ENTRIES, [Finding(key=Key.INVALID, message=exc.message)])
        else:
            self._settle(ENTRIES, [])

    def _report_entry(self, finding: Finding) -> None:
        check = PROOFS if finding.key is Key.LABEL_FORK else ENTRIES
        self.findings.add(check, finding, self.settings.now())


def _cosigned_times(shown: SignedHead, policy: WitnessPolicy) -> dict[str, UnixTime]:
    """Return when each witness of the policy cosigned; a cosignature that does not verify does not count."""
    times: dict[str, UnixTime] = {}
    for witness in policy.witnesses:
        try:
            made = verified_signatures(shown.note, [witness.key]).get(witness.key)
        except SignatureError:
            continue
        if made is not None:
            times[_shown(witness)] = cosigned_at(made.signature)
    return times


def _shown(witness: PolicyWitness) -> str:
    return witness.name.decode(errors="replace")
