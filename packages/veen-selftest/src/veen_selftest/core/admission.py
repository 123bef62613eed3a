"""Every row of the admission table: a request that triggers exactly this row (§8.1, §8.2, H1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from veen_core import rejection
from veen_core.api import wrap_submit
from veen_core.ids import Signature
from veen_core.rejection import TABLE, Rejection
from veen_selftest.core import faults
from veen_selftest.core.order import refused_writer
from veen_selftest.hubs.http_hub import HttpHub, require_refused_by
from veen_selftest.hubs.policy import ELSEWHERE, REVOKED, UNPADDED
from veen_selftest.peers.writer import Writer, key_of
from veen_selftest.runner.check import Check, Skip, require, require_equal
from veen_selftest.runner.context import CheckContext
from veen_selftest.runner.hub_setup import ROTATING, STRICT, STRICT_MAX_MESSAGES


def _by_fault(row: Rejection) -> Callable[[CheckContext], None]:
    def run(context: CheckContext) -> None:
        hub = context.hub()
        if row is rejection.CAP_MISSING and not hub.known.gating:
            raise Skip("the hub is open and asks for no token (RESOLUTIONS H20)")
        require_refused_by(row, faults.play(context, hub, [row]))
        _nothing_changed(context, hub, row)

    return run


def _nothing_changed(context: CheckContext, hub: HttpHub, row: Rejection) -> None:
    """Require that a refused message left no trace: the label accepts the next message."""
    writer = context.writer(hub, on=row.detail)
    writer.seq = 2 if row is rejection.DUPLICATE else 0
    require_equal(
        hub.accept(writer.next()).stream_seq, writer.seq, f"stream_seq after a refusal by {row.detail}"
    )


def _prefilter_reject(context: CheckContext) -> None:
    """A hub that asks for proof of work refuses a message without a proof and accepts one with it (H13)."""
    hub = context.hub(STRICT)
    writer = context.writer(hub)
    wire = writer.next()
    require_refused_by(rejection.PREFILTER_REJECT, hub.post("/v1/submit", wrap_submit(wire)))
    require_refused_by(rejection.PREFILTER_REJECT, hub.submit(wire, VEEN_PoW=hub.cookie(wire, less=3)))
    require_refused_by(rejection.PREFILTER_REJECT, hub.submit(writer.message(2), VEEN_PoW=hub.cookie(wire)))
    require_equal(hub.accept(wire).stream_seq, 1, "stream_seq of a message with proof of work")


def _att_root(context: CheckContext) -> None:
    """The hub's status says that it cannot check att_root, which is encrypted (core §4.5, §8.3)."""
    said = context.hub().status().cannot_enforce
    require(
        any("att_root" in words for words in said),
        "status.cannot_enforce does not name att_root (core §8.3, H4)",
    )


def _refused_writer(context: CheckContext, who: str, row: Rejection) -> Writer:
    """Return a writer that the policy of the selftest's own hubs refuses (H6)."""
    if not context.fleet.starts_hubs:
        raise Skip(
            f"{row.detail} depends on the hub's policy (RESOLUTIONS H6), which is not visible from outside"
        )
    return refused_writer(context, who)


def _not_primary(context: CheckContext) -> None:
    """A message that belongs to another hub by policy is refused before its token is read (AUTH1, H6)."""
    writer = _refused_writer(context, ELSEWHERE, rejection.NOT_PRIMARY)
    require_refused_by(rejection.NOT_PRIMARY, writer.hub.submit(writer.message(1)))


def _revoked(context: CheckContext) -> None:
    """A client_id that the policy revoked is refused, even with a valid token (KEX1+, H6)."""
    writer = _refused_writer(context, REVOKED, rejection.REVOKED)
    require_refused_by(rejection.CAP_MISSING, writer.hub.submit(writer.message(1)))
    require_refused_by(rejection.REVOKED, writer.hub.submit(writer.authorized().message(1)))


def _padding(context: CheckContext) -> None:
    """A ciphertext without the padding that the policy demands is refused (LCLASS0)."""
    writer = _refused_writer(context, UNPADDED, rejection.PADDING).authorized()
    require_refused_by(rejection.PADDING, writer.hub.submit(writer.message(1)))


def _cap_invalid(context: CheckContext) -> None:
    """A token whose signatures do not verify is not authorized, and no message can use it (core §6)."""
    hub = context.hub()
    writer = context.writer_without_token(hub)
    forged = replace(writer.token(), sig_chain=(Signature(bytes(64)),))
    require_refused_by(rejection.CAP_INVALID, hub.post("/tooling/authorize", forged))
    writer.auth_ref = forged.auth_ref
    if hub.known.gating:
        require_refused_by(rejection.CAP_MISSING, hub.submit(writer.next()))


def _cap_issuer(context: CheckContext) -> None:
    """A token of an issuer that the hub does not accept is refused (H18)."""
    hub = context.hub()
    token = context.writer_without_token(hub).token(issuer=key_of(context.secret, "notary"))
    require_refused_by(rejection.CAP_ISSUER, hub.post("/tooling/authorize", token))


def _cap_issuer_withdrawn(context: CheckContext) -> None:
    """An authorized token is refused once the hub no longer accepts its issuer (H18)."""
    notary = key_of(context.secret, "notary")
    own = context.own_hub()
    own.change({"issuers": [notary.public.hex()]})
    writer = context.writer_without_token(own.start()).authorized(issuer=notary)
    writer.hub.accept(writer.next())
    own.stop()
    own.change({"issuers": []})
    require_refused_by(rejection.CAP_ISSUER, own.start().submit(writer.next()))
    own.stop()


def _client_bounds(context: CheckContext) -> None:
    """A client_id beyond its bounds is refused, another one is accepted (KEX1+ 4.1)."""
    if not context.fleet.starts_hubs:
        raise Skip("the bounds of client_ids are a setting that is not visible from outside (KEX1+ 4.1)")
    hub = context.hub(STRICT)
    alice, bob = context.writer(hub), context.writer(hub, "bob")
    hub.accept_many(alice.many(STRICT_MAX_MESSAGES))
    require_refused_by(rejection.CLIENT_BOUNDS, hub.submit(alice.next()))
    hub.accept(bob.next())


def _cap_ttl(context: CheckContext) -> None:
    """A token expires ttl seconds after its receipt; authorizing it again does not renew it (core §6, H5)."""
    faults.require_wait(context)
    hub = context.hub()
    writer = context.writer_without_token(hub)
    token = writer.token(ttl=1)
    given = hub.authorize(token)
    writer.auth_ref = given.auth_ref
    require_equal(given.expires_at, given.receipt.hub_ts + 1, "expires_at (core §6)")
    hub.accept(writer.next())
    faults.wait_until_after(context, hub, given.expires_at)
    require_equal(hub.authorize(token).expires_at, given.expires_at, "expires_at when asked again (H5)")
    require_refused_by(rejection.CAP_TTL, hub.submit(writer.next()))


def _epoch(context: CheckContext) -> None:
    """A label of an epoch outside the window is refused by EPOCH (core §12, H4)."""
    hub = context.hub(ROTATING)
    now = hub.status().epoch
    for offset in (-5, 5):
        writer = context.writer(hub, on=f"{offset:+}", epoch=now + offset)
        require_refused_by(rejection.EPOCH, hub.submit(writer.next()))


SPECIAL_ROWS: Final[dict[Rejection, Callable[[CheckContext], None]]] = {
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
"""Rows that a single message to a plain hub cannot trigger."""


def _again(context: CheckContext) -> None:
    """The same request is refused with the same code and detail each time (I13)."""
    hub = context.hub()
    writer = context.writer(hub)
    wires = (writer.message(3), writer.message(1, prev_ack=5), writer.message(1, sig=bytes(64)))
    for wire in wires:
        answers = [hub.submit(wire) for _ in range(3)]
        found = {(a.status, a.error.code, str(a.error.detail)) for a in answers}
        require_equal(len(found), 1, "different refusals of one request")
        named = {answer.error.request_id for answer in answers}
        require_equal(len(named), 3, "request ids of three requests (core §10.6)")


CHECKS: Final = (
    *(
        Check(
            f"admission.{row.detail}",
            f"core §8.2 {row.code}",
            _by_fault(row) if row in faults.FAULTS else SPECIAL_ROWS[row],
            f"Refused by {row.detail}: {row.means}.",
        )
        for row in TABLE
    ),
    Check("admission.CAP_ISSUER.withdrawn", "H18", _cap_issuer_withdrawn),
    Check("admission.deterministic", "core §7 I13", _again),
)
