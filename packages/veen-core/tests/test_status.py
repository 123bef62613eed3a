"""The hub's status, and the digests that tooling and attachment requests sign (§12, H5, H17, H19)."""

import dataclasses

import pytest

from veen_core import DEFAULT_LIMITS, DecodeError, H, Ht, Label, cbor, stream
from veen_core.hashing import u64be
from veen_core.hub_identity import sign_identity
from veen_core.ids import AuthRef, Coid, HubId, UnixTime
from veen_core.pow import pow_salt
from veen_core.status import MAX_ADMIN_AGE, Status, admin_digest, attachment_digest

from .simulator import BORN, Hub

LABEL, COID, REF = Label(b"\x01" * 32), Coid(b"\x02" * 32), AuthRef(b"\x03" * 32)


@pytest.fixture
def status(hub: Hub) -> Status:
    return Status(
        identity=hub.identity,
        identity_sig=sign_identity(hub.key, hub.identity),
        profile=hub.profile,
        limits=DEFAULT_LIMITS,
        hub_ts=hub.now,
        epoch=hub.epoch,
        control_label=stream.control_label(hub.origin.routing_key),
        gating=True,
        enforces=("CAP",),
        cannot_enforce=("I5",),
        pow_salt=pow_salt(hub.identity.hub_id, BORN),
        pow_difficulty=0,
        max_page_items=1_000,
        level="core",
        server_version="0",
        hub_log_origin="hub.example/log",
        memories=("witness witness.example/w1",),
        not_signing="the hub is behind",
    )


def test_a_status_comes_back_from_its_bytes_and_its_json(status: Status) -> None:
    assert Status.decode(status.encode()) == status
    assert Status.from_json(status.to_json()) == status


def test_a_status_without_the_keys_about_trust_is_one_of_an_earlier_version(status: Status) -> None:
    bare = dataclasses.replace(status, hub_log_origin=None, memories=None, not_signing=None)
    assert list(Status.codec.write(bare)) == list(range(1, 17))
    assert Status.decode(bare.encode()) == bare


def test_a_status_with_an_invalid_part_is_refused(status: Status) -> None:
    items = Status.codec.write(status)
    last = len(dataclasses.fields(status)) - 2  # replica_of and handover are set by few hubs (P9)
    assert list(items) == list(range(1, last + 1))
    with pytest.raises(DecodeError, match=r"status\.profile .core §12.: profile .core §3\.2.: pad_block"):
        Status.decode(cbor.encode(items | {4: items[4] | {7: 2**30}}))


def test_a_tooling_request_signs_hub_method_path_body_and_time() -> None:
    hub = HubId(H(b"hub"))
    signed = admin_digest(hub, "POST", "/tooling/x", b"body", BORN)
    assert signed == Ht("veen/tooling", hub + b"POST/tooling/x" + H(b"body") + u64be(BORN))  # H19
    assert MAX_ADMIN_AGE == 60
    others = [
        admin_digest(hub, "GET", "/tooling/x", b"body", BORN),
        admin_digest(hub, "POST", "/tooling/y", b"body", BORN),
        admin_digest(hub, "POST", "/tooling/x", b"", BORN),
        admin_digest(hub, "POST", "/tooling/x", b"body", UnixTime(BORN + 1)),
        admin_digest(HubId(H(b"other")), "POST", "/tooling/x", b"body", BORN),
    ]
    assert len({signed, *others}) == 6


def test_an_attachment_upload_signs_label_coid_and_auth_ref() -> None:
    assert attachment_digest(LABEL, COID, REF) == Ht("veen/att-put", LABEL + COID + REF)  # H17
    assert attachment_digest(LABEL, COID, None) == Ht("veen/att-put", LABEL + COID + bytes(32))
