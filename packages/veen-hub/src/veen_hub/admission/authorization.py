"""Authorization of cap tokens: verify one, append it once to the control label, report its record (H5)."""

from __future__ import annotations

from veen_core.cap import CapToken, verify_token
from veen_core.errors import AdmissionError, ApiError, CapError, DecodeError
from veen_core.ids import AuthRef, Label, StreamSeq, UnixTime
from veen_core.limits import Limits
from veen_core.rejection import CAP_INVALID, CAP_ISSUER, CBOR_INVALID, Code
from veen_core.status import AuthorizeResponse, CapStatus
from veen_hub.admission.labels import LabelMap
from veen_hub.ops.metrics import Metrics, StageCounts
from veen_hub.pipeline.log_access import LogAccess
from veen_hub.version import VERSION
from veen_storage import Batch, CapRecord, Reader


class Authorization:
    """Verifies and records the cap tokens of one hub; used from the event loop."""

    def __init__(
        self,
        log: LogAccess,
        reader: Reader,
        labels: LabelMap,
        *,
        issuers: frozenset[bytes],
        limits: Limits,
        control_label: Label,
        metrics: Metrics,
        counts: StageCounts,
    ) -> None:
        self._log = log
        self._reader = reader
        self._labels = labels
        self._issuers = issuers
        self._limits = limits
        self._control_label = control_label
        self._metrics = metrics
        self._counts = counts

    async def authorize(self, token_bytes: bytes) -> AuthorizeResponse:
        """Verify a token and append it to the control label, once (H5, H18)."""
        token = self._verified(token_bytes)
        auth_ref = token.auth_ref

        def append_once(batch: Batch) -> StreamSeq:
            held = batch.view.cap(auth_ref)
            if held is not None and held.control_seq:
                return held.control_seq
            placed = batch.authorize(token, token_bytes, self._control_label)
            self._labels.learn(token.allow.stream_ids)  # the map belongs to the sequencer's thread
            self._counts.accepted += 1
            return placed.stream_seq

        seq = await self._log.act(append_once)
        receipt = await self._log.read(lambda: self._reader.receipt(self._control_label, seq))
        status = await self.status(auth_ref)
        expires_at = status.expires_at if status.expires_at is not None else receipt.hub_ts
        self._metrics.cap_checks.labels("ok").inc()
        return AuthorizeResponse(
            auth_ref=auth_ref, expires_at=expires_at, receipt=receipt, server_version=VERSION
        )

    def _verified(self, token_bytes: bytes) -> CapToken:
        try:
            token = CapToken.decode(token_bytes)
        except DecodeError as exc:
            self._metrics.cap_checks.labels("malformed").inc()
            raise AdmissionError(CBOR_INVALID, str(exc)) from None
        try:
            verify_token(token, self._limits)
        except CapError as exc:
            self._metrics.cap_checks.labels("invalid").inc()
            raise AdmissionError(CAP_INVALID, str(exc)) from None
        if token.issuer_pk not in self._issuers:
            self._metrics.cap_checks.labels("issuer").inc()
            raise AdmissionError(
                CAP_ISSUER, f"this hub does not accept tokens of issuer {token.issuer_pk.hex()}"
            )
        return token

    async def status(self, auth_ref: AuthRef) -> CapStatus:
        """Report the record of a token, including a token that was used before it was authorized."""

        def look_up(batch: Batch) -> tuple[CapRecord, UnixTime] | None:
            record = batch.view.cap(auth_ref)
            return (record, batch.view.issued_at(record)) if record is not None else None

        found = await self._log.act(look_up, reads=True)
        if found is None:
            raise ApiError(Code.NOT_FOUND, f"the hub has never seen auth_ref {auth_ref.hex()}")
        record, issued_at = found
        token = record.token
        return CapStatus(
            auth_ref=auth_ref,
            issued_at=issued_at,
            known=token is not None,
            expires_at=token.expires_at(issued_at) if token is not None else None,
            issuer_pk=token.issuer_pk if token is not None else None,
            subject_pk=token.subject_pk if token is not None else None,
            server_version=VERSION,
        )
