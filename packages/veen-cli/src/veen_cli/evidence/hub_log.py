"""Verify hub evidence and hub checkpoints, and describe each step for a person (P1, P2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from veen_cli.arguments import times
from veen_cli.frame.output import plural
from veen_core import hub_identity, hub_log
from veen_core.errors import IdentityError, VerificationError
from veen_core.hub_evidence import HubEvidence, verify_evidence
from veen_core.hub_fork import HubLogFork, LabelFork, verify_hub_log_fork, verify_label_fork
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, Signature
from veen_core.tlog.note import NoteSignature, cosigned_at
from veen_core.tlog.policy import Cosigned, WitnessPolicy
from veen_core.tlog.tree_head import SignedHead

COSIGNATURE_BYTES: Final = 8 + Signature.SIZE
"""The time, and an Ed25519 signature (C2SP tlog-cosignature v1)."""
NO_POLICY: Final = "no witness policy was given: only the hub vouches for its log (--witnesses FILE)"


@dataclass(slots=True)
class HubLogs:
    """The hub checkpoints seen so far, by name and size of the log."""

    known: dict[tuple[str, int], tuple[bytes, str]] = field(default_factory=dict)

    def add(self, signed: SignedHead, where: str) -> None:
        """Add a verified hub checkpoint; raise if another root is known for the same size (P1)."""
        key = signed.head.origin, signed.head.size
        root, other = self.known.setdefault(key, (signed.head.root, where))
        if root != signed.head.root:
            raise VerificationError(
                f"contradicts {other}: the hub signed two hub logs of {signed.head.size} entries",
                action="keep both as evidence: together they convict the hub",
            )


def is_pinned(identity: HubIdentity, pin: HubId) -> bool:
    """Return whether a valid identity has the pinned hub_id or first hub_pk."""
    try:
        hub_identity.verify_identity(identity)
    except IdentityError:
        return False
    return bytes(pin) in (bytes(identity.hub_id), bytes(identity.hub_keys[0].hub_pk))


def names_hub(policy: WitnessPolicy | None, identity: HubIdentity, origin: str) -> bool:
    """Return whether a policy pins the hub, by naming a key of its log."""
    keys = {key.hub_pk for key in identity.hub_keys}
    return policy is not None and any(
        log.key.name == origin and log.key.public in keys for log in policy.logs
    )


def verify_hub_evidence(
    evidence: HubEvidence, pinned: HubIdentity | None, policy: WitnessPolicy | None
) -> tuple[str, list[str]]:
    """Verify evidence; return what it proves, and each step in words.

    ``pinned`` is the identity of the pinned hub, as far as it is known; it may have more keys than the file.
    """
    hub_id = pinned.hub_id if pinned is not None else None
    found = verify_evidence(evidence, pinned=hub_id, policy=policy, known=pinned)
    receipt, head, log = found.receipt, found.head, found.checkpoint.head
    proved = (
        f"message {receipt.stream_seq} of label {receipt.label.hex()[:16]}… is in the log of hub "
        f"{evidence.identity.hub_id.hex()[:16]}…"
    )
    return proved, [
        _identity_step(evidence, policy, is_pinned=pinned is not None),
        f"the hub signed the receipt of message {receipt.stream_seq}, with the message's hash "
        f"{receipt.leaf_hash.hex()[:16]}…, at {times.format_utc(receipt.hub_ts)}",
        f"the message is under the label's head, which covers {plural(head.upto_seq, 'message')}",
        f"the label's head is entry {evidence.index + 1} of {log.size} in the hub log",
        f"the hub signed the root of the hub log, as {log.origin}",
        cosigned_step(found.cosigned, policy),
    ]


def _identity_step(evidence: HubEvidence, policy: WitnessPolicy | None, *, is_pinned: bool) -> str:
    which = "the one that the file names"
    if is_pinned:
        which = "the pinned one"
    elif names_hub(policy, evidence.identity, evidence.signed_head.head.origin):
        which = "the one that the policy names"
    count = plural(len(evidence.identity.hub_keys), "key")
    return f"the hub is {which}, {evidence.identity.hub_id.hex()}, with {count}"


def cosigned_step(cosigned: Cosigned | None, policy: WitnessPolicy | None) -> str:
    """Say who cosigned a hub checkpoint, and since when the policy's quorum is reached."""
    if cosigned is None or policy is None:
        return NO_POLICY
    names = ", ".join(_shown(witness.name) for witness in cosigned.witnesses) or "none"
    if cosigned.quorum_at is None:
        return f"the policy needs no cosignature; witnesses that cosigned: {names}"
    return (
        f"{len(cosigned.witnesses)} of {plural(len(policy.witnesses), 'witness', 'witnesses')} cosigned it "
        f"({names}), a quorum since {times.format_utc(cosigned.quorum_at)}"
    )


def verify_checkpoint_note(identity: HubIdentity, signed: SignedHead, policy: WitnessPolicy | None) -> str:
    """Verify a hub checkpoint: signed by a key of the hub and, with a policy, by a quorum."""
    origin = signed.head.origin
    hub_log.verify_hub_checkpoint(identity, signed, origin=origin)
    by_hub = f"the hub signed a hub log of {plural(signed.head.size, 'entry', 'entries')} as {origin}"
    if policy is None:
        return f"{by_hub}; {NO_POLICY}"
    cosigned = policy.check(signed, log_keys=hub_log.note_keys(identity, origin))
    return f"{by_hub}; {cosigned_step(cosigned, policy)}"


def verify_fork(evidence: HubLogFork | LabelFork, known: HubIdentity | None, hub: str) -> str:
    """Verify evidence of a fork; ``known`` is the pinned hub's identity, ``hub`` names it in the answer."""
    if isinstance(evidence, HubLogFork):
        verify_hub_log_fork(evidence, known=known)
        return f"two hub checkpoints that contradict each other convict {hub}"
    verify_label_fork(evidence, known=known)
    return f"two statements about one label that contradict each other convict {hub}"


def checkpoint_fields(signed: SignedHead) -> dict[str, object]:
    """Return the content of a hub checkpoint for ``veen inspect``; no signature is verified."""
    head = signed.head
    extensions = {"extensions": list(head.extensions)} if head.extensions else {}
    return {
        "origin": head.origin,
        "size": head.size,
        "root": head.root,
        **extensions,
        "signatures, not verified": [_signature_line(each) for each in signed.note.signatures],
    }


def _signature_line(signature: NoteSignature) -> str:
    """Describe a signature line; only its length distinguishes the signature of a witness from a log's."""
    name = f"{signature.name}, key id {signature.key_id.hex()}"
    if len(signature.signature) != COSIGNATURE_BYTES:
        return name
    return f"{name}, a cosignature of {times.format_utc(cosigned_at(signature.signature))}"


def policy_fields(policy: WitnessPolicy) -> dict[str, object]:
    """Return the content of a witness policy for ``veen inspect``."""
    return {
        "logs": [f"{log.key.text}{_at(log.url)}" for log in policy.logs],
        "witnesses": [f"{_shown(each.name)}: {each.key.text}{_at(each.url)}" for each in policy.witnesses],
        "groups": [
            f"{_shown(each.name)}: {each.threshold} of {', '.join(map(_shown, each.members))}"
            for each in policy.groups
        ],
        "quorum": _shown(policy.quorum),
        "oldest cosignatures allowed": times.format_duration(policy.max_age_sec),
    }


def _at(url: str | None) -> str:
    return f" at {url}" if url is not None else ""


def _shown(name: bytes) -> str:
    return name.decode(errors="replace")
