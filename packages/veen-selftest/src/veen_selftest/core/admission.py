"""Every row of the admission table: a request that triggers exactly it, or why none can (§8.1, §8.2, H1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from veen_core import rejection
from veen_core.api import wrap_submit
from veen_core.ids import Signature
from veen_core.rejection import TABLE, Rejection
from veen_selftest.core import faults
from veen_selftest.core.order import outcast
from veen_selftest.hubs.http_hub import Hub, refused_by
from veen_selftest.hubs.policy import ELSEWHERE, REVOKED, UNPADDED
from veen_selftest.peers.writer import Writer, key_of
from veen_selftest.runner.check import Check, Skip, require, same
from veen_selftest.runner.context import Bench
from veen_selftest.runner.hub_setup import MOST_MESSAGES, ROTATING, STRICT


def _by_fault(row: Rejection) -> Callable[[Bench], None]:
    def run(bench: Bench) -> None:
        hub = bench.hub()
        if row is rejection.CAP_MISSING and not hub.known.gating:
            raise Skip("the hub is open: it asks for no token (H20)")
        refused_by(row, faults.play(bench, hub, [row]))
        _nothing_changed(bench, hub, row)

    return run


def _nothing_changed(bench: Bench, hub: Hub, row: Rejection) -> None:
    """A refused message leaves no trace: the label holds what was accepted, and takes the next."""
    writer = bench.writer(hub, on=row.detail)
    writer.seq = 2 if row is rejection.DUPLICATE else 0
    same(hub.accept(writer.next()).stream_seq, writer.seq, f"stream_seq after a refusal by {row.detail}")


def _prefilter_reject(bench: Bench) -> None:
    """A hub that asks for work refuses a message without it, and takes the same message with it (H13)."""
    hub = bench.hub(STRICT)
    writer = bench.writer(hub)
    wire = writer.next()
    refused_by(rejection.PREFILTER_REJECT, hub.post("/v1/submit", wrap_submit(wire)))
    refused_by(rejection.PREFILTER_REJECT, hub.submit(wire, VEEN_PoW=hub.cookie(wire, less=3)))
    refused_by(rejection.PREFILTER_REJECT, hub.submit(writer.message(2), VEEN_PoW=hub.cookie(wire)))
    same(hub.accept(wire).stream_seq, 1, "stream_seq of a message with its work")


def _att_root(bench: Bench) -> None:
    """A hub cannot judge att_root, which is in the encrypted header: it says so (§4.5, §8.3)."""
    said = bench.hub().status().cannot_enforce
    require(
        any("att_root" in words for words in said), "status.cannot_enforce does not name att_root (§8.3, H4)"
    )


def _outcast(bench: Bench, who: str, row: Rejection) -> Writer:
    """Somebody whom the policy of the selftest's own hubs does not let in (H6)."""
    if not bench.fleet.starts_hubs:
        raise Skip(f"{row.detail} is a policy's word (H6), and what its view holds is not known from outside")
    return outcast(bench, who)


def _not_primary(bench: Bench) -> None:
    """What a policy says is another hub's is refused, before any token is looked at (AUTH1, H6)."""
    writer = _outcast(bench, ELSEWHERE, rejection.NOT_PRIMARY)
    refused_by(rejection.NOT_PRIMARY, writer.hub.submit(writer.message(1)))


def _revoked(bench: Bench) -> None:
    """Whom a policy calls revoked is refused, with a token that is right (KEX1+, H6)."""
    writer = _outcast(bench, REVOKED, rejection.REVOKED)
    refused_by(rejection.CAP_MISSING, writer.hub.submit(writer.message(1)))
    refused_by(rejection.REVOKED, writer.hub.submit(writer.authorized().message(1)))


def _padding(bench: Bench) -> None:
    """A ciphertext that is not as long as a policy wants is refused, with a token that is right (LCLASS0)."""
    writer = _outcast(bench, UNPADDED, rejection.PADDING).authorized()
    refused_by(rejection.PADDING, writer.hub.submit(writer.message(1)))


def _cap_invalid(bench: Bench) -> None:
    """A token whose chain does not verify is never authorized, so no message can use it (§6)."""
    hub = bench.hub()
    writer = bench.stranger(hub)
    forged = replace(writer.token(), sig_chain=(Signature(bytes(64)),))
    refused_by(rejection.CAP_INVALID, hub.post("/tooling/authorize", forged))
    writer.auth_ref = forged.auth_ref
    if hub.known.gating:
        refused_by(rejection.CAP_MISSING, hub.submit(writer.next()))


def _cap_issuer(bench: Bench) -> None:
    """A token of an issuer that the hub was not told of counts nothing (H18)."""
    hub = bench.hub()
    token = bench.stranger(hub).token(issuer=key_of(bench.secret, "notary"))
    refused_by(rejection.CAP_ISSUER, hub.post("/tooling/authorize", token))


def _cap_issuer_withdrawn(bench: Bench) -> None:
    """A token that was authorized counts nothing once its issuer is no longer accepted (H18)."""
    notary = key_of(bench.secret, "notary")
    own = bench.own()
    own.change({"issuers": [notary.public.hex()]})
    writer = bench.stranger(own.start()).authorized(issuer=notary)
    writer.hub.accept(writer.next())
    own.stop()
    own.change({"issuers": []})
    refused_by(rejection.CAP_ISSUER, own.start().submit(writer.next()))
    own.stop()


def _client_bounds(bench: Bench) -> None:
    """A client_id that was used up is refused, another one is not (KEX1+ 4.1)."""
    if not bench.fleet.starts_hubs:
        raise Skip("whether a hub bounds client_ids, and how, cannot be seen from outside (KEX1+ 4.1)")
    hub = bench.hub(STRICT)
    alice, bob = bench.writer(hub), bench.writer(hub, "bob")
    hub.accept_many(alice.many(MOST_MESSAGES))
    refused_by(rejection.CLIENT_BOUNDS, hub.submit(alice.next()))
    hub.accept(bob.next())


def _cap_ttl(bench: Bench) -> None:
    """A token ends with its ttl, counted from its receipt; asking again does not renew it (§6, H5)."""
    faults.patient(bench)
    hub = bench.hub()
    writer = bench.stranger(hub)
    token = writer.token(ttl=1)
    given = hub.authorize(token)
    writer.auth_ref = given.auth_ref
    same(given.expires_at, given.receipt.hub_ts + 1, "expires_at (§6)")
    hub.accept(writer.next())
    faults.outlast(bench, hub, given.expires_at)
    same(hub.authorize(token).expires_at, given.expires_at, "expires_at when asked again (H5)")
    refused_by(rejection.CAP_TTL, hub.submit(writer.next()))


def _epoch(bench: Bench) -> None:
    """A label of the right stream and the wrong epoch is refused by its epoch (§12, H4)."""
    hub = bench.hub(ROTATING)
    now = hub.status().epoch
    for offset in (-5, 5):
        writer = bench.writer(hub, on=f"{offset:+}", epoch=now + offset)
        refused_by(rejection.EPOCH, hub.submit(writer.next()))


OTHERS: Final[dict[Rejection, Callable[[Bench], None]]] = {
    rejection.PREFILTER_REJECT: _prefilter_reject,
    rejection.ATT_ROOT: _att_root,
    rejection.NOT_PRIMARY: _not_primary,
    rejection.CAP_INVALID: _cap_invalid,
    rejection.CAP_ISSUER: _cap_issuer,
    rejection.REVOKED: _revoked,
    rejection.CLIENT_BOUNDS: _client_bounds,
    rejection.CAP_TTL: _cap_ttl,
    rejection.PADDING: _padding,
    rejection.EPOCH: _epoch,
}
"""Rows that one message to a plain hub cannot show."""


def _again(bench: Bench) -> None:
    """The same request is refused in the same way each time (I13)."""
    hub = bench.hub()
    writer = bench.writer(hub)
    wires = (writer.message(3), writer.message(1, prev_ack=5), writer.message(1, sig=bytes(64)))
    for wire in wires:
        answers = [hub.submit(wire) for _ in range(3)]
        found = {(a.status, a.error.code, str(a.error.detail)) for a in answers}
        same(len(found), 1, "different refusals of one request")
        named = {answer.error.request_id for answer in answers}
        same(len(named), 3, "request ids of three requests (§10.6)")


CHECKS: Final = (
    *(
        Check(
            f"admission.{row.detail}",
            f"§8.2 {row.code}",
            _by_fault(row) if row in faults.FAULTS else OTHERS[row],
            f"{row.means}: refused by this row",
        )
        for row in TABLE
    ),
    Check("admission.CAP_ISSUER.withdrawn", "H18", _cap_issuer_withdrawn),
    Check("admission.deterministic", "§7 I13", _again),
)
