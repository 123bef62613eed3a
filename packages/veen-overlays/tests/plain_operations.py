"""A plain interpreter of domains: it walks a log once, and shares no code with the folds that it checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from veen_core import cbor
from veen_core.hashing import Ht
from veen_overlays.operations.access import AccessGrant, AccessRevoke
from veen_overlays.operations.delegation import DelegatedExecution
from veen_overlays.operations.payment import Domain, PaidOperation
from veen_overlays.wallet import records as wal


@dataclass
class Told:
    """A grant as the interpreter remembers it."""

    seq: int
    issuer: bytes
    at: int
    grant: AccessGrant
    spent: int = 0
    tokens: int = 0
    since: int = 0
    used: bool = False

    @property
    def ref(self) -> bytes:
        allow: dict[int, Any] = {1: list(self.grant.allowed_stream_ids), 2: self.grant.expiry_time - self.at}
        if self.grant.maximum_rate_per_second is not None:
            burst = self.grant.maximum_burst
            rate = self.grant.maximum_rate_per_second
            allow[3] = {1: rate, 2: rate if burst is None else burst}
        token = {1: 1, 2: self.issuer, 3: bytes(self.grant.subject_identity), 4: allow, 5: []}
        return Ht("veen/cap", cbor.encode(token))


@dataclass
class World:
    """Balances of accounts that have no wallet rules but open, deposit and freeze."""

    domain: Domain | None = None
    balance: dict[bytes, int] = field(default_factory=dict)
    unit: dict[bytes, str] = field(default_factory=dict)
    frozen: set[bytes] = field(default_factory=set)
    grants: list[Told] = field(default_factory=list)
    ends: list[tuple[int, bytes, bytes, bytes | None]] = field(default_factory=list)
    outcomes: list[str] = field(default_factory=list)

    @property
    def authorities(self) -> tuple[bytes, ...]:
        return self.domain.authorities if self.domain else ()

    def valid(self, told: Told, now: int) -> bool:
        for seq, issuer, subject, ref in self.ends:
            who = issuer == told.issuer or issuer in self.authorities
            what = ref == told.ref if ref is not None else subject == told.grant.subject_identity
            if seq > told.seq and who and what:
                return False
        return now <= told.grant.expiry_time

    def take(self, seq: int, signer: bytes, now: int, record: Any) -> None:
        match record:
            case wal.Open():
                if record.wallet_id not in self.balance:
                    self.balance[record.wallet_id], self.unit[record.wallet_id] = 0, record.currency
            case wal.Deposit():
                if record.wallet_id in self.balance:
                    self.balance[record.wallet_id] += record.amount
            case wal.Freeze():
                if record.wallet_id in self.balance:
                    self.frozen.add(record.wallet_id)
            case _:
                self.outcomes.append(self.operate(seq, signer, now, record))

    def operate(self, seq: int, signer: bytes, now: int, record: Any) -> str:
        if isinstance(record, Domain):
            if self.domain is not None and signer not in self.domain.authorities:
                return "A1: issuer"
            self.domain = record
        elif isinstance(record, AccessGrant):
            if record.expiry_time < now:
                return "expired"
            self.grants.append(Told(seq, signer, now, record))
        elif isinstance(record, AccessRevoke):
            self.ends.append((seq, signer, record.subject_identity, record.target_capability_reference))
        elif isinstance(record, PaidOperation):
            return self.pay(signer, now, record, [])
        elif isinstance(record, DelegatedExecution):
            return self.execute(seq, signer, now, record)
        return "applied"

    def execute(self, seq: int, signer: bytes, now: int, record: DelegatedExecution) -> str:
        chain = []
        for ref in record.delegation_chain:
            found = [told for told in self.grants if told.ref == ref]
            alive = [told for told in found if self.valid(told, now)]
            if not found:
                return "D2: unknown capability"
            if not alive:
                return "expired" if now > found[-1].grant.expiry_time else "revoked"
            chain.append(alive[-1])
        if chain[0].issuer not in self.authorities:
            return "A1: issuer"
        if chain[0].grant.subject_identity != record.principal_identity:
            return "D2: principal"
        if chain[-1].grant.subject_identity != signer:
            return "D2: agent"
        for n in range(1, len(chain)):
            if chain[n].issuer != chain[n - 1].grant.subject_identity:
                return "D2: broken chain"
            if any(s not in chain[n - 1].grant.allowed_stream_ids for s in chain[n].grant.allowed_stream_ids):
                return "D2: wider scope"
        shapes = {each.SCHEMA: each for each in (PaidOperation, AccessGrant, AccessRevoke)}
        if record.operation_schema not in shapes:
            return "applied"
        inner: Any = shapes[record.operation_schema].decode(cbor.encode(record.operation_body))
        if isinstance(inner, PaidOperation):
            return self.pay(record.principal_identity, now, inner, chain)
        return self.operate(seq, record.principal_identity, now, inner)

    def pay(self, payer: bytes, now: int, paid: PaidOperation, chain: list[Told]) -> str:
        a, b, amount = bytes(paid.payer_account), bytes(paid.payee_account), paid.amount
        unit = paid.currency_code
        if unit is None:
            unit = (self.domain.currency_code if self.domain else None) or ""
        if a == b:
            return "same-account"
        if self.unit.get(a, unit) != unit or self.unit.get(b, unit) != unit:
            return "currency"
        if a in self.frozen:
            return "frozen"
        overdraft = self.domain is not None and self.domain.negative_balances
        if self.balance.get(a, 0) < amount and not overdraft:
            return "funds"
        charged = self.charged(payer, paid, unit, now, chain)
        if isinstance(charged, str):
            return charged
        for told in charged:
            told.spent += amount
            if told.grant.maximum_rate_per_second is not None:
                told.tokens, told.since, told.used = self.left(told, now) - 1, now, True
        self.balance[a] = self.balance.get(a, 0) - amount
        self.balance[b] = self.balance.get(b, 0) + amount
        self.unit[a] = self.unit[b] = unit
        return "applied"

    def left(self, told: Told, now: int) -> int:
        rate = told.grant.maximum_rate_per_second or 0
        burst = rate if told.grant.maximum_burst is None else told.grant.maximum_burst
        return min(burst, told.tokens + (now - told.since) * rate) if told.used else burst

    def covers(self, told: Told, amount: int, now: int) -> str | None:
        if told.spent + amount > (told.grant.maximum_amount or 0):
            return "amount"
        if told.grant.maximum_rate_per_second is not None and self.left(told, now) <= 0:
            return "rate"
        return None

    def charged(
        self, payer: bytes, paid: PaidOperation, unit: str, now: int, chain: list[Told]
    ) -> str | list[Told]:
        account, amount = bytes(paid.payer_account), paid.amount

        def bounds(told: Told) -> bool:
            return told.grant.maximum_amount is not None and told.grant.currency_code in (None, unit)

        charged = [told for told in chain if told.grant.maximum_amount is not None]
        if not all(bounds(told) for told in charged):
            return "no-grant"
        for told in charged:
            if why := self.covers(told, amount, now):
                return why
        own = [
            told
            for who in ([payer] if payer == account else [payer, account])
            for told in self.grants
            if told.grant.subject_identity == who
            and told.issuer in self.authorities
            and told.grant.maximum_amount is not None
        ]
        if any(told in charged for told in own):
            return charged
        if not own and not (self.domain and self.domain.grants_required):
            return charged
        why = "no-grant"
        for told in own:
            if bounds(told) and self.valid(told, now):
                refused = self.covers(told, amount, now)
                if refused is None:
                    return [*charged, told]
                why = refused
        return why
