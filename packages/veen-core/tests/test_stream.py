"""Streams, epochs and labels (§2, §3.2, §12, B12, B13)."""

import pytest

from veen_core import H, Ht, HubPk, StreamId, label, routing_key, stream, stream_id
from veen_core.errors import EncodeError
from veen_core.hashing import u64be
from veen_core.ids import Epoch, UnixTime


def test_a_stream_is_named_by_the_hash_of_its_name() -> None:
    assert stream_id("orders") == H(b"orders")
    assert stream_id("disc.hubs.v1") == H(b"disc.hubs.v1")  # B12
    assert stream_id("søknad") == H("søknad".encode())


@pytest.mark.parametrize("name", ["ab" * 32, "AB" * 32], ids=["lowercase", "uppercase"])
def test_64_hex_digits_are_the_id_itself(name: str) -> None:
    assert stream_id(name) == StreamId(b"\xab" * 32)


@pytest.mark.parametrize("name", ["ab" * 31, "zz" * 32, "ab" * 31 + " 0", "", "٣" * 64])
def test_anything_but_64_hex_digits_is_a_name(name: str) -> None:
    assert stream_id(name) == H(name.encode())


def test_label_and_routing_key_are_derived_from_the_hubs_identity() -> None:
    hub = stream.hub_id(HubPk(bytes(32)))
    assert hub == Ht("veen/hub-id", bytes(32))
    routing = routing_key(hub)
    assert routing == Ht("veen/routing_key", hub)
    orders = stream_id("orders")
    assert label(routing, orders, Epoch(7)) == Ht("veen/label", routing + orders + u64be(7))


@pytest.mark.parametrize(
    ("now", "epoch_sec", "epoch"),
    [
        pytest.param(119, 60, 1, id="last second"),
        pytest.param(120, 60, 2, id="first second"),
        pytest.param(10**9, 0, 0, id="without epochs"),
        pytest.param(0, 60, 0, id="the beginning"),
    ],
)
def test_an_epoch_is_the_floor_of_time_over_its_length(now: int, epoch_sec: int, epoch: int) -> None:
    assert stream.epoch_at(UnixTime(now), epoch_sec) == epoch


@pytest.mark.parametrize(
    ("now", "epoch_sec", "skew", "window"),
    [
        pytest.param(600, 60, 60, [9, 10, 11], id="one epoch each way"),
        pytest.param(600, 60, 59, [10], id="a skew shorter than an epoch"),
        pytest.param(600, 60, 0, [10], id="no skew"),
        pytest.param(600, 60, 125, [8, 9, 10, 11, 12], id="rounded down"),
        pytest.param(0, 60, 120, [0, 1, 2], id="never before epoch 0"),
        pytest.param(600, 0, 60, [0], id="without epochs only 0 is valid"),
    ],
)
def test_a_hub_accepts_the_epochs_within_its_skew(
    now: int, epoch_sec: int, skew: int, window: list[int]
) -> None:
    assert list(stream.epoch_window(UnixTime(now), epoch_sec, skew)) == window


def test_a_lone_surrogate_names_no_stream() -> None:
    with pytest.raises(EncodeError, match="lone surrogate") as caught:
        stream_id("orders\ud800")
    assert caught.value.__cause__ is None


def test_the_control_label_has_its_own_stream_and_epoch_0() -> None:
    routing = routing_key(stream.hub_id(HubPk(bytes(32))))
    assert stream.control_label(routing) == label(routing, stream_id("veen/control"), Epoch(0))  # H5
