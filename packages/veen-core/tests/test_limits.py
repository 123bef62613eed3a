"""The limit registry: §14's maxima, which may be lowered and never raised (§14.1, §14.2)."""

import dataclasses

import pytest

from veen_core import DEFAULT_LIMITS, DEFAULT_PROFILE, DecodeError, Limits, PayloadHeader, cbor, verify_msg
from veen_core.ciphertext import Sealer, pad, split
from veen_core.errors import ConfigError, DecodeFault
from veen_core.keys import DhSecret
from veen_core.limits import ENTRY_OVERHEAD_BYTES, MAX_CAP_CHAIN, MAX_PROOF_PATH, MAXIMA
from veen_core.msg import check_size

from .simulator import READER, SCHEMA, Hub

NAMES = [field.name for field in dataclasses.fields(Limits)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_msg_bytes", 1_048_576),
        ("max_hdr_bytes", 16_384),
        ("max_body_bytes", 1_048_320),
        ("max_attachments_per_msg", 1_024),
    ],
)
def test_the_defaults_are_those_of_section_14(name: str, value: int) -> None:
    assert getattr(DEFAULT_LIMITS, name) == value


def test_the_fixed_bounds_are_those_of_section_14() -> None:
    assert (MAX_PROOF_PATH, MAX_CAP_CHAIN) == (64, 8)


def test_the_registry_lists_what_section_14_1_lists_in_its_order() -> None:
    assert NAMES == [
        "max_msg_bytes",
        "max_hdr_bytes",
        "max_body_bytes",
        "max_attachments_per_msg",
        "max_attachment_bytes",
        "max_chunk_bytes",
        "max_checkpoint_interval",
        "max_cap_rate_per_sec",
        "max_cap_rate_burst",
        "max_epoch_skew_sec",
    ]


def _lower(name: str) -> dict[str, int]:
    """One less; a chunk must still hold the largest message."""
    return {name: getattr(DEFAULT_LIMITS, name) - 1}


@pytest.mark.parametrize("name", NAMES)
def test_any_limit_may_be_lowered(name: str) -> None:
    lowered = DEFAULT_LIMITS.lowered(_lower(name))
    assert getattr(lowered, name) == MAXIMA[name] - 1
    assert Limits() == DEFAULT_LIMITS


@pytest.mark.parametrize("name", NAMES)
def test_no_limit_may_be_raised(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} = .* would raise the limit"):
        DEFAULT_LIMITS.lowered({name: MAXIMA[name] + 1})
    with pytest.raises(ConfigError, match="may only be lowered"):
        Limits(**{name: MAXIMA[name] + 1})


def test_a_lowered_limit_cannot_be_raised_back() -> None:
    lowered = DEFAULT_LIMITS.lowered({"max_hdr_bytes": 100})
    with pytest.raises(ConfigError, match="would raise the limit of 100"):
        lowered.lowered({"max_hdr_bytes": 101})


def test_an_unknown_limit_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match=r"unknown limit max_typo; known are max_msg_bytes, "):
        DEFAULT_LIMITS.lowered({"max_typo": 1})


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_an_integer_and_not_negative(name: str) -> None:
    for value in (-1, True, 1.0, "1"):
        with pytest.raises(ConfigError, match=f"{name} must be an integer"):
            Limits(**{name: value})


@pytest.mark.parametrize("name", ["max_attachments_per_msg", "max_attachment_bytes", "max_epoch_skew_sec"])
def test_a_limit_that_can_be_switched_off_may_be_zero(name: str) -> None:
    assert getattr(DEFAULT_LIMITS.lowered({name: 0}), name) == 0


def test_everything_else_is_at_least_one() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        Limits(max_body_bytes=0)


def test_max_chunk_bytes_must_be_enough_for_the_largest_entry() -> None:
    smallest = DEFAULT_LIMITS.max_msg_bytes + ENTRY_OVERHEAD_BYTES
    assert DEFAULT_LIMITS.lowered({"max_chunk_bytes": smallest}).max_chunk_bytes == smallest
    with pytest.raises(ConfigError, match=f"set it to at least {smallest}"):
        DEFAULT_LIMITS.lowered({"max_chunk_bytes": smallest - 1})


def test_the_registry_is_an_artifact_that_comes_back_from_its_bytes() -> None:
    limits = DEFAULT_LIMITS.lowered({"max_hdr_bytes": 100})
    assert Limits.decode(limits.encode()) == limits
    assert Limits.from_json(limits.to_json()) == limits


def test_a_registry_with_a_raised_limit_does_not_load() -> None:
    items = DEFAULT_LIMITS.codec.write(DEFAULT_LIMITS) | {1: 2_000_000}
    with pytest.raises(DecodeError, match=r"LIMITS .core §14\.1.: max_msg_bytes = 2000000 is above"):
        Limits.decode(cbor.encode(items))
    with pytest.raises(DecodeError, match="max_msg_bytes"):
        Limits.from_json(DEFAULT_LIMITS.to_json().replace("1048576", "2000000", 1))


# --- derived sizing rules (§14.2)


def test_the_encoded_message_counts_against_max_msg_bytes(hub: Hub) -> None:
    wire = hub.compose("bob").encode()
    verify_msg(wire, DEFAULT_LIMITS.lowered({"max_msg_bytes": len(wire)}))
    with pytest.raises(DecodeError, match="exceed max_msg_bytes") as caught:
        verify_msg(wire, DEFAULT_LIMITS.lowered({"max_msg_bytes": len(wire) - 1}))
    assert caught.value.fault is DecodeFault.SIZE


def test_the_bound_itself_is_allowed() -> None:
    check_size(1_048_576, DEFAULT_LIMITS)
    with pytest.raises(DecodeError):
        check_size(1_048_577, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("name", "field"), [("max_hdr_bytes", "hdr_len"), ("max_body_bytes", "body_len")], ids=["header", "body"]
)
def test_header_and_body_are_bounded_from_the_length_fields_before_any_decryption(
    hub: Hub, name: str, field: str
) -> None:
    ciphertext = hub.compose("bob").ciphertext
    parts = split(ciphertext)
    length = len(parts.header if field == "hdr_len" else parts.body)
    split(ciphertext, DEFAULT_LIMITS.lowered({name: length}))
    with pytest.raises(DecodeError, match=f"{field} {length} exceeds {name} = {length - 1}"):
        split(ciphertext, DEFAULT_LIMITS.lowered({name: length - 1}))


def test_a_length_field_beyond_the_bound_is_refused_although_the_bytes_are_not_there() -> None:
    announced = bytes(32) + b"\xff\xff\xff\xff" + b"\xff\xff\xff\xff"
    with pytest.raises(DecodeError, match="hdr_len 4294967295 exceeds"):
        split(announced)


def test_padding_counts_toward_the_message_and_not_toward_the_body(hub: Hub) -> None:
    body_len = len(split(hub.compose("bob").ciphertext).body)
    padded = pad(hub.compose("bob").ciphertext, 4_096)
    assert len(padded) == 4_096
    split(padded, DEFAULT_LIMITS.lowered({"max_body_bytes": body_len}))


def test_a_sealer_refuses_a_header_that_a_reader_would_refuse(hub: Hub) -> None:
    binding = hub.compose("bob").binding
    header = PayloadHeader(schema=SCHEMA)
    sealer = Sealer(READER.public, binding, DhSecret(bytes(32)))
    with pytest.raises(DecodeError, match="body_len 26 exceeds max_body_bytes = 25"):
        sealer.seal(
            header,
            b"0123456789",
            pad_block=DEFAULT_PROFILE.pad_block,
            limits=DEFAULT_LIMITS.lowered({"max_body_bytes": 25}),
        )
