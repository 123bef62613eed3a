"""Loading an identity folder that `veen keygen` wrote, sealed or not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from veen_core.errors import KeystoreError
from veen_core.ids import UnixTime
from veen_core.keys import DhSecret, SigningSeed
from veen_core.keystore import MIN_COST, KeystoreNonce, Salt, Secrets, seal_keystore
from veen_hub.client import Identity

SECRETS = Secrets(id_sign=SigningSeed(b"s" * 32), id_dh=DhSecret(b"d" * 32), created_at=UnixTime(1))
CARD = Identity.of(SECRETS).card


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    keystore = seal_keystore(
        SECRETS,
        "pässword".encode(),
        salt=Salt(b"x" * Salt.SIZE),
        nonce=KeystoreNonce(b"n" * KeystoreNonce.SIZE),
        cost=MIN_COST,
    )
    (tmp_path / "keystore.enc").write_bytes(keystore.encode())
    return tmp_path


@pytest.mark.parametrize("passphrase", ["pässword", "pässword".encode()], ids=["text", "bytes"])
def test_a_sealed_identity_opens_with_its_passphrase(folder: Path, passphrase: str | bytes) -> None:
    assert Identity.load(str(folder), passphrase).card == CARD


def test_a_sealed_identity_does_not_open_without_its_passphrase(folder: Path) -> None:
    with pytest.raises(KeystoreError, match=r"is sealed with a passphrase; pass it as passphrase="):
        Identity.load(folder)
    with pytest.raises(KeystoreError, match="the passphrase is wrong"):
        Identity.load(folder, "guess")


def test_an_unsealed_identity_needs_no_passphrase(tmp_path: Path) -> None:
    path = tmp_path / "secrets.cbor"
    path.touch(0o600)
    path.write_bytes(SECRETS.encode())
    assert Identity.load(tmp_path).card == CARD


def test_keys_that_others_can_read_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "secrets.cbor"
    path.write_bytes(SECRETS.encode())
    path.chmod(0o640)
    with pytest.raises(KeystoreError, match=r"other users can read the keys in .*; run `chmod 600"):
        Identity.load(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that belongs to root")
@pytest.mark.parametrize(
    ("mode", "group", "accepted"),
    [
        (0o440, 10001, True),
        (0o444, 10001, False),
        (0o440, 10002, False),
    ],
    ids=["secret volume", "world", "foreign group"],
)
def test_keys_of_a_secret_volume_may_be_read_by_the_group_of_the_process(
    tmp_path: Path, mode: int, group: int, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets.cbor"
    path.write_bytes(SECRETS.encode())
    os.chown(path, 0, group)
    path.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 10001)
    monkeypatch.setattr(os, "getegid", lambda: 10001)
    monkeypatch.setattr(os, "getgroups", list)
    if accepted:
        assert Identity.load(tmp_path).card == CARD
    else:
        with pytest.raises(KeystoreError, match=r"other users can read the keys .* defaultMode 0440"):
            Identity.load(tmp_path)


def test_a_folder_without_an_identity_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeystoreError, match=r"holds no identity; create one with `veen keygen --out"):
        Identity.load(tmp_path / "nobody")


def test_a_damaged_file_is_named_and_shows_no_secret(folder: Path) -> None:
    (folder / "keystore.enc").write_bytes(b"\x00" + bytes(SECRETS.id_sign))
    with pytest.raises(KeystoreError, match=r"keystore\.enc is damaged; restore it") as caught:
        Identity.load(folder, "x")
    assert "ssss" not in str(caught.value)
