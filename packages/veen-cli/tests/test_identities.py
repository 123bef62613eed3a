from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from veen_cli.frame.exits import Exit
from veen_core.card import IdentityCard, verify_card

from .conftest import STREAM, Town
from .running import veen


@pytest.fixture
def sealed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("VEEN_PASSPHRASE", "correct horse")
    veen("keygen", "--out", tmp_path / "me").ok()
    return tmp_path / "me"


def test_keys_are_sealed_unless_no_passphrase_is_given(sealed: Path) -> None:
    assert (sealed / "keystore.enc").exists()
    assert not (sealed / "secrets.cbor").exists()
    assert veen("id", "show", "--client", sealed, "--json").json["sealed"] is True


def test_without_a_passphrase_no_identity_is_created(tmp_path: Path) -> None:
    told = veen("keygen", "--out", tmp_path / "me").failed(Exit.POLICY)
    assert "--no-passphrase" in told
    assert not (tmp_path / "me").exists()


def test_unsealed_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    veen("keygen", "--out", tmp_path / "me", "--no-passphrase").ok()
    secrets = tmp_path / "me/secrets.cbor"
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    secrets.chmod(0o644)
    token = ("--subject", tmp_path / "me", "--stream", "s", "--out", tmp_path / "t")
    assert "chmod 600" in veen("cap", "issue", "--issuer", tmp_path / "me", *token).failed(Exit.POLICY)


def test_keys_are_never_overwritten(sealed: Path) -> None:
    before = (sealed / "keystore.enc").read_bytes()
    veen("keygen", "--out", sealed).failed(Exit.POLICY)
    assert (sealed / "keystore.enc").read_bytes() == before


def test_the_passphrase_comes_from_a_file_or_the_environment_and_a_wrong_one_is_refused(
    sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issue = ("cap", "issue", "--issuer", sealed, "--subject", sealed, "-s", "s", "--out", tmp_path / "token")
    veen(*issue).ok()
    assert "token exists" in veen(*issue).failed(Exit.USAGE)
    (tmp_path / "token").unlink()
    monkeypatch.setenv("VEEN_PASSPHRASE", "wrong")
    assert "VEEN_PASSPHRASE" in veen(*issue).failed(Exit.USAGE)
    monkeypatch.delenv("VEEN_PASSPHRASE")
    (tmp_path / "phrase").write_text("correct horse\n")
    assert "chmod 600" in veen(*issue, "--passphrase-file", tmp_path / "phrase").failed(Exit.POLICY)
    (tmp_path / "phrase").chmod(0o600)
    veen(*issue, "--passphrase-file", tmp_path / "phrase").ok()
    assert "needs a passphrase" in veen(*issue).failed(Exit.POLICY)
    monkeypatch.setenv("VEEN_PASSPHRASE", "")
    assert "empty" in veen(*issue).failed(Exit.POLICY)


def test_rotating_adds_a_receiving_key_and_signs_a_card_that_names_it(sealed: Path, tmp_path: Path) -> None:
    before = veen("id", "show", "--client", sealed, "--json").json
    after = veen("id", "rotate", "--client", sealed, "--ttl", "1d", "--json").json
    assert after["id_sign"] == before["id_sign"]
    assert (len(before["prekeys"]), len(after["prekeys"])) == (0, 1)
    veen("id", "card", "--client", sealed, "--out", tmp_path / "me.pub").ok()
    card = IdentityCard.decode((tmp_path / "me.pub").read_bytes())
    verify_card(card)
    assert card.prekeys[0].dh_pk.hex() == after["prekeys"][0]["dh_pk"]


def test_messages_sealed_to_the_old_or_new_key_open_after_a_rotation(town: Town, tmp_path: Path) -> None:
    carol = tmp_path / "carol"
    veen("keygen", "--out", carol, "--no-passphrase").ok()
    first = town.as_("alice", "send", "to the old key", "-s", STREAM, "--to", carol, "--json").json[
        "stream_seq"
    ]
    veen("id", "rotate", "--client", carol).ok()
    town.as_("alice", "send", "to the new key", "-s", STREAM, "--to", carol).ok()
    flags = ("--hub", town.url, "--trust", town.hub_id, "--client", carol)
    read = veen("stream", "-s", STREAM, "--from", first, "--quiet", *flags).ok()
    assert read.out.splitlines() == ["to the old key", "to the new key"]


def test_a_client_id_can_get_a_token_and_be_renewed(
    town: Town, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dave = tmp_path / "dave"
    veen("keygen", "--out", dave, "--no-passphrase").ok()
    flags = ("--hub", town.url, "--trust", town.hub_id, "--client", dave)
    client_id = veen("id", "client-id", "-s", "side", *flags, "--json").json["client_id"]
    monkeypatch.setenv("VEEN_STREAM", "side")
    assert veen("id", "client-id", *flags).ok().out.strip() == client_id
    token = ("--subject", client_id, "-s", "side", "--out", tmp_path / "t")
    veen("cap", "issue", "--issuer", town / "admin", *token).ok()
    veen("send", "unlinked", "-s", "side", "--cap", tmp_path / "t", *flags).ok()
    assert veen("id", "client-id", "-s", "side", "--renew", *flags).ok().out.strip() != client_id


def test_a_token_is_issued_inspected_authorized_and_looked_up(town: Town, tmp_path: Path) -> None:
    token = tmp_path / "bob.cap"
    options = ("--subject", town / "bob/identity_card.pub", "-s", "side", "--ttl", "10m", "--rate", "5,10")
    issued = veen("cap", "issue", "--issuer", town / "admin", *options, "--out", token, "--json").json
    assert (issued["ttl"], issued["rate"]) == (600, {"per_sec": 5, "burst": 10})
    shown = veen("cap", "inspect", token, "--json").json
    assert shown["auth_ref"] == issued["auth_ref"]
    assert "AUTH" in town.as_("bob", "cap", "status", "ab" * 32).failed(Exit.REFUSED).upper()
    town.as_("bob", "cap", "authorize", token).ok()
    known = town.as_("bob", "cap", "status", token, "--json").json
    assert (known["known"], known["expired"]) == (True, False)
    content = bytearray(token.read_bytes())
    content[-1] ^= 1
    token.write_bytes(content)
    veen("cap", "inspect", token).failed(Exit.PROTOCOL)


def test_a_token_of_an_unknown_issuer_is_refused(town: Town, tmp_path: Path) -> None:
    token = tmp_path / "own.cap"
    veen(
        "cap", "issue", "--issuer", town / "bob", "--subject", town / "bob", "-s", "side", "--out", token
    ).ok()
    assert "CAP_ISSUER" in town.as_("bob", "cap", "authorize", token).failed(Exit.REFUSED)


@pytest.mark.parametrize("text", ["1,", "x,2", "5"])
def test_a_malformed_rate_is_a_usage_error(text: str, tmp_path: Path) -> None:
    args = ("--issuer", tmp_path, "--subject", "ab" * 32, "-s", "s", "--out", tmp_path / "t", "--rate", text)
    assert "PER_SECOND,BURST" in veen("cap", "issue", *args).failed(Exit.USAGE)
    assert os.listdir(tmp_path) == []
