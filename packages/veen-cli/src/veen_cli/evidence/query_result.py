"""Query results in files (``.veenq``): verify them without a hub, and show their content (query-api §5)."""

from __future__ import annotations

from veen_cli.evidence.hub_log import is_pinned
from veen_cli.evidence.verdicts import Undecided
from veen_cli.frame.output import plural
from veen_core.errors import VerificationError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId
from veen_core.receipt import Receipt
from veen_core.tlog.policy import WitnessPolicy
from veen_overlays.query.result.result_file import ResultFile
from veen_overlays.query.verify.verification import ResultTrust, verify_result


def verify_query_result(
    file: ResultFile,
    pin: HubId | None,
    known: HubIdentity | None,
    policy: WitnessPolicy | None,
    receipts: tuple[Receipt, ...] = (),
) -> tuple[str, list[str]]:
    """Verify a result; return what it proves, and each step in words.

    ``known`` is the identity of the pinned hub, as far as it is known; ``receipts`` are receipts that the
    verifier holds and has verified. Without a pin, the verdict is undecided.
    """
    hubs = file.evidence.identities
    if pin is not None:
        for identity in hubs:
            if not is_pinned(identity, pin):
                raise VerificationError(
                    f"rests on hub {identity.hub_id.hex()}, but {pin.hex()} is pinned",
                    action="`veen query verify` takes several hubs with --trust",
                )
    trust = ResultTrust(
        pinned={identity.hub_id for identity in hubs} if pin is not None else None,
        identities={} if known is None else {known.hub_id: known},
        policy=policy,
        known=receipts,
    )
    verdict = verify_result(file, trust)
    if pin is None:
        names = ", ".join(hub.hex() for hub in verdict.hubs)
        raise Undecided(f"verifies for hub {names}: give --trust with this id, if that is the hub you mean")
    digest = verdict.digest
    sources = plural(len(digest.coverage), "source")
    why = (
        f"{plural(digest.row_count, 'row')} of query {digest.query_id} over {sources}, "
        f"{plural(verdict.receipts, 'receipt')} verified (mode {digest.evidence_policy.mode})"
    )
    limits = [f"not proved: {each['means']}" for each in digest.limits]
    return why, [*verdict.steps, *limits]


def result_fields(file: ResultFile) -> dict[str, object]:
    """Return the content of a result for ``veen inspect``; nothing is verified."""
    return {
        "descriptor": file.descriptor.as_json(),
        "digest": file.digest.as_json(),
        "rows": file.rows(),
        "hubs": [identity.hub_id for identity in file.evidence.identities],
        "receipts": sum(len(source.receipts) for source in file.evidence.sources),
        "evidence bytes": len(file.evidence.encode()),
    }
