"""veen id: principals, devices, accounts, organisations, handles, and authentication of messages."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from veen_cli.frame.exits import Exit

from .conftest import Town
from .running import veen


@pytest.fixture(scope="session")
def reader(square: Town) -> tuple[str, Path]:
    return "--reader", square / "realm"


def test_a_handle_leads_to_an_account_and_its_profile(square: Town, reader: tuple[str, Path]) -> None:
    realm = ("--realm", "names")
    account = square.as_("bob", "id", "ctx", *realm, "--name", "Bob", *reader, "--json").json["ctx_id"]
    square.as_("bob", "id", "handle", "@bob", *realm, *reader).ok()
    told = square.as_("alice", "id", "whois", "@bob", *realm, *reader, "--json").json
    assert (told["ctx_id"], told["display_name"]) == (account, "Bob")
    assert (
        square.as_("alice", "id", "whois", account, *realm, *reader, "--json").json["display_name"] == "Bob"
    )
    nobody = square.as_("alice", "id", "whois", "@carol", *realm, *reader).failed(Exit.USAGE)
    assert "has the handle @carol" in nobody
    assert "--reader" in nobody
    assert "lowercase" in square.as_("bob", "id", "handle", "Bob!", *realm, *reader).failed(Exit.USAGE)


def test_an_organisation_has_a_handle_too(square: Town, reader: tuple[str, Path]) -> None:
    org = square.as_("admin", "id", "org", "--name", "Bakery", *reader, "--json").json["org_id"]
    square.as_("admin", "id", "handle", "bakery", "--org", org, "--realm", "names", *reader).ok()
    told = square.as_("alice", "id", "whois", "bakery", "--realm", "names", *reader, "--json").json
    assert (told["org_id"], told["display_name"]) == (org, "Bakery")


def test_an_account_is_linked_to_an_external_subject(square: Town, reader: tuple[str, Path]) -> None:
    told = square.as_(
        "bob", "id", "link", "--realm", "names", "--provider", "example", "--sub", "17", *reader, "--json"
    ).json
    state = square.as_("alice", "fold", "id.directory", told["stream"], *reader, "--json").json["state"]
    assert [each["external_sub"] for each in state["links"].values()] == ["17"]
    said = square.as_("bob", "id", "link", "--realm", "names", "--provider", "example", *reader)
    assert "--sub" in said.failed(Exit.USAGE)


SIGNER = ed25519.Ed25519PrivateKey.generate()
PROVIDER = ("--provider", "corp", "--issuer", "https://id.example", "--audience", "shop")


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def id_token(**changed: object) -> str:
    """Return an ID token signed by the provider."""
    now = int(time.time())
    claims = {"iss": "https://id.example", "aud": "shop", "sub": "user-7", "iat": now, "exp": now + 300}
    head = b64(json.dumps({"alg": "EdDSA", "kid": "k1"}).encode())
    signed = f"{head}.{b64(json.dumps(claims | changed).encode())}"
    return f"{signed}.{b64(SIGNER.sign(signed.encode()))}"


def key_set() -> str:
    """Return the provider's key set."""
    public = b64(SIGNER.public_key().public_bytes_raw())
    return json.dumps({"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "k1", "x": public}]})


@pytest.fixture
def files(tmp_path: Path) -> tuple[object, ...]:
    """Write the provider's key set and an ID token; return the options that name them."""
    (tmp_path / "keys.json").write_text(key_set())
    (tmp_path / "t.jwt").write_text(id_token() + "\n")
    return "--jwks", tmp_path / "keys.json", "--id-token", tmp_path / "t.jwt"


def test_an_account_is_linked_by_an_id_token(
    square: Town, reader: tuple[str, Path], files: tuple[object, ...], tmp_path: Path
) -> None:
    """ID 10.2, level External: verified against the provider's key set, then linked."""
    link = ("id", "link", "--realm", "oidc", *PROVIDER, *files, *reader)
    told = square.as_("bob", *link, "--json").json
    assert (told["sub"], told["verified"]) == ("user-7", True)
    state = square.as_("alice", "fold", "id.directory", told["stream"], *reader, "--json").json["state"]
    (found,) = state["links"].values()
    assert (found["provider"], found["external_sub"]) == ("corp", "user-7")
    (tmp_path / "t.jwt").write_text(id_token(nonce="n1"))
    square.as_("bob", *link, "--nonce", "n1").ok()
    assert "nonce" in square.as_("bob", *link, "--nonce", "n2").failed(Exit.PROTOCOL)
    assert "either --sub or --id-token" in square.as_("bob", *link, "--sub", "17").failed(Exit.USAGE)


@pytest.mark.parametrize(
    ("token", "said"),
    [
        (lambda: id_token(aud="bank"), "aud"),
        (lambda: id_token(iss="https://evil.example"), "iss"),
        (lambda: id_token(iat=1, exp=2), "expired"),
        (lambda: id_token()[:-4] + "AAAA", "signature"),
        (lambda: "not a token", "header.claims.signature"),
        (lambda: "é.é.é", "base64url"),
    ],
    ids=["audience", "issuer", "expired", "signature", "words", "not ascii"],
)
def test_an_invalid_id_token_links_no_account(
    square: Town, files: tuple[object, ...], tmp_path: Path, token: Callable[[], str], said: str
) -> None:
    (tmp_path / "t.jwt").write_text(token())
    link = ("id", "link", "--realm", "nobody", *PROVIDER, *files)
    assert said in square.as_("bob", *link).failed(Exit.PROTOCOL)


def test_a_message_is_authenticated_until_its_device_is_revoked(
    square: Town, reader: tuple[str, Path]
) -> None:
    """The hub's admin is the principal, so the hub accepts its tokens."""
    realm = ("--realm", "till")
    veen("keygen", "--out", square / "phone", "--no-passphrase").ok()
    square.as_("admin", "id", "principal", "--info", '{"name": "Ada"}', *reader).ok()
    device = square.as_("admin", "id", "device", square / "phone", "--label", "phone", *reader, "--json").json
    token = square / "phone.cap"
    issue = ("--issuer", square / "admin", "--subject", square / "phone", "--stream", "till", "--out", token)
    veen("cap", "issue", *issue).ok()
    square.as_("phone", "cap", "authorize", token).ok()
    at = square.as_("phone", "send", "hello", "-s", "till", "--cap", token, "--json").json["stream_seq"]

    ask = ("id", "authenticate", "-s", "till", "--seq", at, "--token", token, *realm, *reader)
    told = square.as_("alice", *ask, "--json").json
    assert told["device_id"] == device["device_id"]

    account, org = told["ctx_id"], square.as_("admin", "id", "org", *reader, "--json").json["org_id"]
    cashier = ("--org", org, "--role", "cashier")
    assert "lacks the role cashier" in square.as_("alice", *ask, *cashier).failed(Exit.POLICY)
    group = square.as_("admin", "id", "group", "staff", "--add", account, *reader, "--json").json["group_id"]
    square.as_("admin", "id", "role", "cashier", "--group", group, *reader).ok()
    square.as_("alice", *ask, *cashier).ok()
    square.as_("admin", "id", "group", "staff", "--remove", account, *reader).ok()
    assert "9.2.4 roles" in square.as_("alice", *ask, *cashier).failed(Exit.POLICY)

    without = ("id", "authenticate", "-s", "till", "--seq", at, *realm, *reader)
    assert "9.2.2 cap_token" in square.as_("alice", *without).failed(Exit.POLICY)
    square.as_("admin", "id", "revoke", "--device", device["device_id"], *reader).ok()
    assert "the device is revoked" in square.as_("alice", *ask).failed(Exit.POLICY)
    assert "--device" in square.as_("admin", "id", "revoke", *reader).failed(Exit.USAGE)
