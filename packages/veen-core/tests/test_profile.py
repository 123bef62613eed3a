"""The cryptographic profile and its id (§3.2, H10)."""

import dataclasses

import pytest

from veen_core import DEFAULT_LIMITS, DEFAULT_PROFILE, PROFILES, DecodeError, Ht, Profile, cbor
from veen_core.errors import ConfigError
from veen_core.profile import MAX_PAD_BLOCK


def test_profile_id_is_the_tagged_hash_of_the_profile() -> None:
    assert DEFAULT_PROFILE.profile_id == Ht("veen/profile", DEFAULT_PROFILE.encode())


def test_a_profile_is_a_map_of_eight_keys_in_ascending_order() -> None:
    assert cbor.decode(DEFAULT_PROFILE.encode()) == {
        1: "xchacha20poly1305",
        2: "hkdf-sha256",
        3: "ed25519",
        4: "x25519",
        5: "X25519-HKDF-SHA256-CHACHA20POLY1305",
        6: 0,
        7: 256,
        8: "sha256",
    }
    assert list(cbor.decode(DEFAULT_PROFILE.encode())) == list(range(1, 9))


@pytest.mark.parametrize(
    ("name", "epoch_sec", "pad_block"), [("default", 0, 256), ("bulk", 0, 0), ("rotating", 60, 256)]
)
def test_the_named_profiles(name: str, epoch_sec: int, pad_block: int) -> None:
    assert (PROFILES[name].epoch_sec, PROFILES[name].pad_block) == (epoch_sec, pad_block)


def test_every_profile_has_its_own_id() -> None:
    assert len({profile.profile_id for profile in PROFILES.values()}) == len(PROFILES)


def test_changing_any_parameter_changes_the_id() -> None:
    assert dataclasses.replace(DEFAULT_PROFILE, pad_block=512).profile_id != DEFAULT_PROFILE.profile_id


@pytest.mark.parametrize(
    "key", [1, 2, 3, 4, 5, 8], ids=["aead", "kdf", "sig", "dh", "hpke_suite", "mmr_hash"]
)
def test_only_the_one_suite_of_this_version_is_allowed(key: int) -> None:
    items = DEFAULT_PROFILE.codec.write(DEFAULT_PROFILE) | {key: "rot13"}
    with pytest.raises(DecodeError, match=r"§3\.2.: want '"):
        Profile.decode(cbor.encode(items))


def test_there_is_no_implicit_pad_block() -> None:
    items = DEFAULT_PROFILE.codec.write(DEFAULT_PROFILE)
    del items[7]
    with pytest.raises(DecodeError, match=r"pad_block .core §3\.2.: missing"):
        Profile.decode(cbor.encode(items))


def test_a_block_of_padding_is_no_larger_than_a_message() -> None:
    assert MAX_PAD_BLOCK == DEFAULT_LIMITS.max_msg_bytes == 2**20
    largest = Profile(epoch_sec=0, pad_block=MAX_PAD_BLOCK)
    assert Profile.decode(largest.encode()) == largest
    with pytest.raises(ConfigError, match="pad_block 1048577 exceeds 1048576, the size of the largest MSG"):
        dataclasses.replace(largest, pad_block=MAX_PAD_BLOCK + 1)
    items = largest.codec.write(largest) | {7: MAX_PAD_BLOCK + 1}
    with pytest.raises(DecodeError, match=r"profile .core §3\.2.: pad_block 1048577"):
        Profile.decode(cbor.encode(items))
