"""Attachments: sealing, content ids and att_root (§4.6, B5, B6)."""

import dataclasses

import pytest

from veen_core import DEFAULT_LIMITS, DEFAULT_PROFILE, H, Ht, Msg, PayloadHeader, seal_msg
from veen_core.attachment import EMPTY_ATT_ROOT, Attachment, att_root, check_attachments, key_context, nonce
from veen_core.errors import OpenError
from veen_core.hashing import u64be
from veen_core.ids import AttRoot, Coid, CtHash
from veen_core.keys import DhSecret

from .simulator import READER, SCHEMA, Hub, flip, signing_key

FILES = (b"first", b"", b"third" * 100)


@pytest.fixture
def sealed(hub: Hub) -> tuple[Msg, tuple[Attachment, ...]]:
    binding = hub.compose("bob").binding
    result = seal_msg(
        signing_key("bob"),
        READER.public,
        binding,
        PayloadHeader(schema=SCHEMA),
        b"see attached",
        profile=DEFAULT_PROFILE,
        ephemeral=DhSecret(bytes(32)),
        attachments=FILES,
    )
    return result.msg, result.attachments


def coids(count: int) -> list[Coid]:
    return [Coid(bytes([n]) * 32) for n in range(count)]


# --- sealing


def test_attachments_open_at_their_own_position(sealed: tuple[Msg, tuple[Attachment, ...]]) -> None:
    msg, attachments = sealed
    opened = msg.open(READER)
    assert tuple(opened.attachment(i, a.ciphertext) for i, a in enumerate(attachments)) == FILES


def test_the_header_commits_to_the_attachments(sealed: tuple[Msg, tuple[Attachment, ...]]) -> None:
    msg, attachments = sealed
    assert msg.open(READER).header.att_root == att_root([a.coid for a in attachments])


def test_a_coid_is_the_hash_of_the_ciphertext(sealed: tuple[Msg, tuple[Attachment, ...]]) -> None:
    _, attachments = sealed
    assert all(a.coid == H(a.ciphertext) for a in attachments)


def test_an_attachment_does_not_open_at_another_position(sealed: tuple[Msg, tuple[Attachment, ...]]) -> None:
    msg, attachments = sealed
    with pytest.raises(OpenError, match="attachment 1 does not open"):
        msg.open(READER).attachment(1, attachments[0].ciphertext)


def test_an_attachment_does_not_open_in_another_message(
    hub: Hub, sealed: tuple[Msg, tuple[Attachment, ...]]
) -> None:
    _, attachments = sealed
    with pytest.raises(OpenError):
        hub.compose("carol").open(READER).attachment(0, attachments[0].ciphertext)


@pytest.mark.parametrize("damage", [flip, lambda c: c[:-1], lambda _: b"", lambda _: b"short"])
def test_a_damaged_attachment_does_not_open(
    sealed: tuple[Msg, tuple[Attachment, ...]], damage: object
) -> None:
    msg, attachments = sealed
    with pytest.raises(OpenError):
        msg.open(READER).attachment(0, damage(attachments[0].ciphertext))


def test_the_nonce_is_made_from_the_draft_id(hub: Hub) -> None:
    binding = hub.compose("bob").binding
    draft = Ht("veen/leaf", binding.label + binding.profile_id + bytes(32) + binding.client_id + u64be(1))
    assert binding.draft_id == draft  # B5: leaf_hash with a zero ct_hash
    assert nonce(binding.draft_id, 3) == Ht("veen/att-nonce", draft + u64be(3))[:24]
    assert key_context(3) == b"veen/att-k" + u64be(3)
    assert CtHash(bytes(32)) == bytes(32)


# --- att_root


def _node(left: bytes, right: bytes) -> bytes:
    return Ht("veen/att-node", left + right)


def test_att_root_hashes_even_a_single_peak() -> None:
    (a,) = coids(1)
    assert Ht("veen/att-root", b"") == EMPTY_ATT_ROOT  # B6: for none,
    assert att_root([a]) == Ht("veen/att-root", a)  # for one peak,


def test_peaks_are_folded_in_increasing_height() -> None:
    a, b, c, d, e, f, g = coids(7)
    assert att_root([a, b]) == Ht("veen/att-root", _node(a, b))
    assert att_root([a, b, c]) == Ht("veen/att-root", c + _node(a, b))
    four = _node(_node(a, b), _node(c, d))
    assert att_root([a, b, c, d, e, f, g]) == Ht("veen/att-root", g + _node(e, f) + four)


def test_att_root_depends_on_the_order() -> None:
    assert att_root(coids(2)) != att_root(coids(2)[::-1])


# --- checking


def test_coids_that_match_att_root_are_accepted() -> None:
    check_attachments(att_root(coids(3)), coids(3), [1, 2, 3], DEFAULT_LIMITS)
    check_attachments(None, [], [], DEFAULT_LIMITS)
    check_attachments(EMPTY_ATT_ROOT, [], [], DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("claimed", "count", "match"),
    [
        pytest.param(att_root(coids(2)), 3, "not the root", id="one too many"),
        pytest.param(att_root(coids(3)), 2, "not the root", id="one too few"),
        pytest.param(AttRoot(bytes(32)), 0, "not the root", id="not the empty root"),
        pytest.param(None, 1, "no att_root", id="no root for what is there"),
    ],
)
def test_coids_that_do_not_match_att_root_are_refused(
    claimed: AttRoot | None, count: int, match: str
) -> None:
    with pytest.raises(OpenError, match=match):
        check_attachments(claimed, coids(count), [1] * count, DEFAULT_LIMITS)


def test_i5_a_message_commits_to_its_attachments_in_order(
    sealed: tuple[Msg, tuple[Attachment, ...]],
) -> None:
    """A reader recomputes each coid from the ciphertext that it fetched, and the root from the coids."""
    msg, attachments = sealed
    claimed = msg.open(READER).header.att_root
    fetched = [attachment.ciphertext for attachment in attachments]

    def check(ciphertexts: list[bytes]) -> None:
        found = [Coid(H(ciphertext)) for ciphertext in ciphertexts]
        check_attachments(claimed, found, [len(one) for one in ciphertexts], DEFAULT_LIMITS)

    check(fetched)
    changes = {
        "reordered": fetched[::-1],
        "repeated": [fetched[0], fetched[0], fetched[2]],
        "one bit flipped": [flip(fetched[0]), *fetched[1:]],
        "truncated": [*fetched[:2], fetched[2][:-1]],
        "none": [],
    }
    for ciphertexts in changes.values():
        with pytest.raises(OpenError, match="not the root of these attachments"):
            check(ciphertexts)


def test_the_bounds_come_before_the_root() -> None:
    few = DEFAULT_LIMITS.lowered({"max_attachments_per_msg": 2})
    with pytest.raises(OpenError, match="3 attachments exceed max_attachments_per_msg = 2"):
        check_attachments(AttRoot(bytes(32)), coids(3), [1, 1, 1], few)
    small = DEFAULT_LIMITS.lowered({"max_attachment_bytes": 10})
    with pytest.raises(OpenError, match="max_attachment_bytes = 10"):
        check_attachments(AttRoot(bytes(32)), coids(1), [11], small)


@pytest.mark.parametrize("sizes", [[], [1], [1, 1, 1]], ids=["none", "one too few", "one too many"])
def test_every_attachment_has_a_size(sizes: list[int]) -> None:
    with pytest.raises(OpenError, match=f"2 attachments, but {len(sizes)} sizes"):
        check_attachments(att_root(coids(2)), coids(2), sizes, DEFAULT_LIMITS)


def test_sealing_checks_the_same_bounds_as_opening(hub: Hub) -> None:
    with pytest.raises(OpenError, match="max_attachments_per_msg = 1"):
        seal_msg(
            signing_key("bob"),
            READER.public,
            hub.compose("bob").binding,
            PayloadHeader(schema=SCHEMA),
            b"",
            profile=DEFAULT_PROFILE,
            ephemeral=DhSecret(bytes(32)),
            attachments=FILES,
            limits=DEFAULT_LIMITS.lowered({"max_attachments_per_msg": 1}),
        )


def test_an_attachment_is_a_value() -> None:
    a = Attachment(Coid(bytes(32)), b"x")
    assert dataclasses.replace(a) == a
