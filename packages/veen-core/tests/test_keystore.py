"""Keystores; and no repr or error ever shows a secret (spec-1 §15)."""

import dataclasses
import traceback
from collections.abc import Callable, Iterator
from typing import NamedTuple

import nacl.exceptions
import pytest
from nacl import bindings, pwhash

from veen_core import DhKey, DhSecret, SigningKey, SigningSeed, VeenError, cbor
from veen_core.ciphertext import Sealer
from veen_core.client_state import RatchetKey
from veen_core.errors import DecodeError, KeystoreError
from veen_core.hashing import H
from veen_core.hpke import OpenContext, SealContext
from veen_core.ids import Secret, UnixTime
from veen_core.keystore import (
    MAX_COST,
    MIN_COST,
    MODERATE,
    Cost,
    Keystore,
    KeystoreNonce,
    PrekeySecret,
    Salt,
    Secrets,
    is_exposed,
    open_keystore,
    seal_keystore,
)
from veen_core.msg import sign_msg

from .simulator import BORN, READER, Hub, dh_key, flip, person, signing_key

PASSPHRASE = b"correct horse battery staple"
SALT, NONCE = Salt(bytes(range(16))), KeystoreNonce(bytes(range(24)))
SEED, DH, PREKEY = H(b"seed"), H(b"dh"), H(b"prekey")


@pytest.fixture
def secrets() -> Secrets:
    prekey = PrekeySecret(secret=DhSecret(PREKEY), expires_at=UnixTime(BORN + 100))
    return Secrets(id_sign=SigningSeed(SEED), id_dh=DhSecret(DH), created_at=BORN, prekeys=(prekey,))


@pytest.fixture
def keystore(secrets: Secrets) -> Keystore:
    return seal_keystore(secrets, PASSPHRASE, salt=SALT, nonce=NONCE, cost=MIN_COST)


# --- sealing and opening


@pytest.mark.parametrize("cause", [MemoryError, nacl.exceptions.RuntimeError, nacl.exceptions.CryptoError])
def test_too_little_memory_is_a_clear_error(
    keystore: Keystore, monkeypatch: pytest.MonkeyPatch, cause: type[Exception]
) -> None:
    def exhausted(*_: object) -> bytes:
        raise cause

    monkeypatch.setattr(pwhash.argon2id, "kdf", exhausted)
    with pytest.raises(KeystoreError, match="opening the keystore takes 8192 bytes") as caught:
        open_keystore(keystore, PASSPHRASE)
    assert caught.value.__suppress_context__


def test_opening_returns_the_sealed_plaintext(keystore: Keystore, secrets: Secrets) -> None:
    assert open_keystore(keystore, PASSPHRASE) == secrets
    assert open_keystore(Keystore.decode(keystore.encode()), PASSPHRASE) == secrets


def test_sealing_the_same_inputs_gives_the_same_bytes(keystore: Keystore, secrets: Secrets) -> None:
    again = seal_keystore(secrets, PASSPHRASE, salt=SALT, nonce=NONCE, cost=MIN_COST)
    assert again.encode() == keystore.encode()


def test_the_secrets_give_the_key_pairs(secrets: Secrets) -> None:
    assert secrets.signing_key.public == SigningKey(SigningSeed(SEED)).public
    assert [key.public for key in secrets.dh_keys] == [DhKey(DhSecret(s)).public for s in (DH, PREKEY)]


def test_a_keystore_file_contains_no_secret_in_clear(keystore: Keystore) -> None:
    for secret in (SEED, DH, PREKEY, PASSPHRASE):
        assert secret not in keystore.encode()


def test_the_default_cost_is_256_mib() -> None:
    assert MODERATE.memory == 256 * 2**20
    assert MIN_COST.memory < MODERATE.memory <= MAX_COST.memory
    assert MIN_COST.passes < MODERATE.passes <= MAX_COST.passes


def test_a_str_passphrase_is_refused_with_a_clear_error(keystore: Keystore, secrets: Secrets) -> None:
    with pytest.raises(KeystoreError, match="a passphrase must be bytes, not str: encode it as UTF-8"):
        open_keystore(keystore, "correct horse")
    with pytest.raises(KeystoreError, match="a passphrase must be bytes"):
        seal_keystore(secrets, None, salt=SALT, nonce=NONCE, cost=MIN_COST)


def test_another_passphrase_does_not_open_a_keystore(keystore: Keystore) -> None:
    with pytest.raises(KeystoreError, match="the passphrase is wrong, or the file is damaged"):
        open_keystore(keystore, b"wrong")


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"salt": Salt(bytes(16))}, id="salt"),
        pytest.param({"nonce": KeystoreNonce(bytes(24))}, id="nonce"),
        pytest.param({"passes": MIN_COST.passes + 1}, id="passes"),
        pytest.param({"memory": MIN_COST.memory * 2}, id="memory"),
        pytest.param({"sealed": b""}, id="sealed is empty"),
        pytest.param({"sealed": b"\x00" * 15}, id="sealed is shorter than a tag"),
    ],
)
def test_every_public_field_is_authenticated(keystore: Keystore, change: dict[str, object]) -> None:
    with pytest.raises(KeystoreError):
        open_keystore(dataclasses.replace(keystore, **change), PASSPHRASE)


@pytest.mark.parametrize("at", [0, 20, -1], ids=["first byte", "inside", "last byte"])
def test_a_keystore_with_a_flipped_bit_does_not_open(keystore: Keystore, at: int) -> None:
    with pytest.raises(KeystoreError):
        open_keystore(dataclasses.replace(keystore, sealed=flip(keystore.sealed, at)), PASSPHRASE)


@pytest.mark.parametrize(
    "cost",
    [
        pytest.param(Cost(MAX_COST.passes + 1, MIN_COST.memory), id="too many passes"),
        pytest.param(Cost(MIN_COST.passes, MAX_COST.memory + 1), id="too much memory"),
        pytest.param(Cost(MIN_COST.passes - 1, MIN_COST.memory), id="too few passes"),
        pytest.param(Cost(MIN_COST.passes, MIN_COST.memory - 1), id="too little memory"),
    ],
)
def test_costs_out_of_bounds_are_refused_before_any_work(
    keystore: Keystore, secrets: Secrets, cost: Cost
) -> None:
    hostile = dataclasses.replace(keystore, passes=cost.passes, memory=cost.memory)
    with pytest.raises(KeystoreError, match="out of bounds"):
        open_keystore(hostile, PASSPHRASE)
    with pytest.raises(KeystoreError, match="out of bounds"):
        seal_keystore(secrets, PASSPHRASE, salt=SALT, nonce=NONCE, cost=cost)


def _sealed_anyway(content: bytes) -> Keystore:
    """A keystore that opens, with other content than secrets."""
    bare = Keystore(passes=MIN_COST.passes, memory=MIN_COST.memory, salt=SALT, nonce=NONCE, sealed=b"")
    key = pwhash.argon2id.kdf(32, PASSPHRASE, SALT, MIN_COST.passes, MIN_COST.memory)
    aad = f"1|argon2id|{MIN_COST.passes}|{MIN_COST.memory}|{SALT.hex()}|{NONCE.hex()}".encode()
    sealed = bindings.crypto_aead_xchacha20poly1305_ietf_encrypt(content, aad, NONCE, key)
    return dataclasses.replace(bare, sealed=sealed)


# --- silence


def _shows(secret: bytes, text: str) -> bool:
    """Whether ``text`` holds the secret in hex or in the way Python prints bytes, even in part."""
    forms = (secret.hex(), secret.hex().upper(), repr(secret)[2:-1], repr(secret[:8])[2:-1], secret[:8].hex())
    return any(form in text for form in forms)


def _everything_about(error: BaseException | None) -> Iterator[str]:
    """Return everything that a log or crash report would print of an error and its causes."""
    if error is None:
        return
    yield from (str(error), repr(error), repr(error.args), repr(getattr(error, "__dict__", {})))
    yield from traceback.format_exception_only(error)
    yield from _everything_about(error.__cause__)
    if error.__context__ is not error.__cause__:
        yield from _everything_about(error.__context__)


HOLDERS: dict[str, Callable[[], object]] = {
    "a signing seed": lambda: SigningSeed(SEED),
    "a DH secret": lambda: DhSecret(SEED),
    "a ratchet key": lambda: RatchetKey(SEED),
    "a plain secret": lambda: Secret(SEED),
    "a signing key": lambda: SigningKey(SigningSeed(SEED)),
    "a DH key": lambda: DhKey(DhSecret(SEED)),
    "a prekey secret": lambda: PrekeySecret(secret=DhSecret(SEED), expires_at=BORN),
    "the secrets of a keystore": lambda: Secrets(
        id_sign=SigningSeed(SEED), id_dh=DhSecret(SEED), created_at=BORN
    ),
    "a client state": lambda: dataclasses.replace(person("alice", Hub()).state, rk=RatchetKey(SEED)),
    "a sender context": lambda: SealContext(READER.public, DhSecret(SEED)),
    "a reader context": lambda: OpenContext(DhKey(DhSecret(SEED)), READER.public),
    "a sealer": lambda: Sealer(READER.public, Hub().compose("bob").binding, DhSecret(SEED)),
    "a list of secrets": lambda: [SigningSeed(SEED)],
}


@pytest.mark.parametrize("name", HOLDERS)
def test_no_repr_shows_a_secret(name: str) -> None:
    holder = HOLDERS[name]()
    for text in (
        repr(holder),
        str(holder),
        f"{holder}",
        f"{holder!r}",
        f"{holder!s}",
        f"{holder!a}",
        "".join(map(str, [holder])),
    ):
        assert not _shows(SEED, text)


def test_the_repr_of_a_secret_shows_its_type_only() -> None:
    assert repr(SigningSeed(SEED)) == "SigningSeed(<secret>)"


def test_an_opened_message_does_not_show_its_body() -> None:
    hub = Hub()
    opened = hub.compose("bob", SEED).open(READER)
    assert opened.body == SEED
    assert not _shows(SEED, repr(opened))


def _opened_after(damage: Callable[[bytes], bytes]) -> object:
    msg = Hub().compose("bob", SEED)
    return dataclasses.replace(msg, ciphertext=damage(msg.ciphertext)).open(READER)


def _signed_by_another() -> object:
    return sign_msg(SigningKey(SigningSeed(SEED)), Hub().compose("bob").binding, b"")


WRONG: dict[str, Callable[[], object]] = {
    "a seed that is too long": lambda: SigningSeed(SEED + b"x"),
    "a seed that is too short": lambda: DhSecret(SEED[:31]),
    "a seed in hex with a stray letter": lambda: SigningSeed.from_hex(SEED.hex()[:-1] + "g"),
    "a seed in uppercase hex": lambda: SigningSeed.from_hex(SEED.hex().upper()),
    "a seed in hex that is too long": lambda: SigningSeed.from_hex(SEED.hex() + "00"),
    "a the passphrase is wrong": lambda: open_keystore(
        seal_keystore(
            Secrets(id_sign=SigningSeed(SEED), id_dh=DhSecret(DH), created_at=BORN),
            b"other" + SEED,
            salt=SALT,
            nonce=NONCE,
            cost=MIN_COST,
        ),
        SEED,
    ),
    "content that is not CBOR": lambda: open_keystore(_sealed_anyway(SEED), PASSPHRASE),
    "content that is text with a secret in it": lambda: open_keystore(
        _sealed_anyway(b"\x78\x20" + SEED), PASSPHRASE
    ),
    "content of another shape": lambda: open_keystore(_sealed_anyway(cbor.encode([SEED])), PASSPHRASE),
    "content with an unknown key": lambda: open_keystore(
        _sealed_anyway(cbor.encode({1: 1, 2: SEED, 3: DH, 4: 0, 5: [], 6: SEED})), PASSPHRASE
    ),
    "content with a secret for a key": lambda: open_keystore(
        _sealed_anyway(cbor.encode({SEED: 1})), PASSPHRASE
    ),
    "content with a secret of another size": lambda: open_keystore(
        _sealed_anyway(cbor.encode({1: 1, 2: SEED + SEED, 3: DH, 4: 0, 5: []})), PASSPHRASE
    ),
    "secrets in JSON as they would be": lambda: Secrets.from_json(
        f'{{"ver":1,"id_sign":"{SEED.hex()}","id_dh":"{DH.hex()}","created_at":0,"prekeys":[]}}'
    ),
    "secrets to be written as JSON": lambda: Secrets(
        id_sign=SigningSeed(SEED), id_dh=DhSecret(DH), created_at=BORN
    ).to_json(),
    "secrets in JSON that is cut off": lambda: Secrets.from_json(f'{{"id_sign": "{SEED.hex()}'),
    "secrets in JSON with a stray letter": lambda: Secrets.from_json(
        f'{{"ver":1,"id_sign":"{SEED.hex()}zz","id_dh":"","created_at":0,"prekeys":[]}}'
    ),
    "secrets in JSON with a secret for a number": lambda: Secrets.from_json(
        f'{{"ver":1,"id_sign":"","id_dh":"","created_at":"{SEED.hex()}","prekeys":[]}}'
    ),
    "a message opened with the wrong key": lambda: Hub().compose("bob", SEED).open(DhKey(DhSecret(SEED))),
    "a damaged header": lambda: _opened_after(lambda c: flip(c, 41)),
    "a damaged body": lambda: _opened_after(lambda c: flip(c.rstrip(b"\0"), -1)),
    "an unusable enc": lambda: _opened_after(lambda c: bytes(32) + c[32:]),
    "a key that may not sign": _signed_by_another,
    "an unusable recipient": lambda: SealContext(READER.public.__class__(bytes(32)), DhSecret(SEED)),
}


@pytest.mark.parametrize("name", WRONG)
def test_no_error_shows_a_secret(name: str) -> None:
    with pytest.raises(VeenError) as caught:
        WRONG[name]()
    for text in _everything_about(caught.value):
        for secret in (SEED, DH, PASSPHRASE, bytes(READER.secret), bytes(dh_key("reader").secret)):
            assert not _shows(secret, text), text


@pytest.mark.parametrize("name", ["content that is not CBOR", "content of another shape"])
def test_a_keystore_with_other_content_is_refused_without_showing_it(name: str) -> None:
    with pytest.raises(KeystoreError, match="this version cannot read its content"):
        WRONG[name]()


def test_secrets_of_a_later_version_are_refused(secrets: Secrets) -> None:
    items = secrets.codec.write(secrets) | {1: 2}
    with pytest.raises(KeystoreError):
        open_keystore(_sealed_anyway(cbor.encode(items)), PASSPHRASE)
    with pytest.raises(DecodeError, match=r"secrets\.ver"):
        Secrets.decode(cbor.encode(items))
    assert signing_key("a").public != secrets.signing_key.public


# --- who can read a file of secrets


class FileMode(NamedTuple):
    st_mode: int
    st_uid: int
    st_gid: int


@pytest.mark.parametrize(
    ("mode", "owner", "group", "user", "exposed"),
    [
        (0o600, 7, 7, 7, False),
        (0o400, 7, 7, 7, False),
        (0o640, 7, 7, 7, True),
        (0o604, 7, 7, 7, True),
        (0o440, 0, 7, 7, False),
        (0o640, 0, 8, 7, False),
        (0o444, 0, 7, 7, True),
        (0o460, 0, 7, 7, True),
        (0o450, 0, 7, 7, True),
        (0o440, 0, 9, 7, True),
        (0o440, 9, 7, 7, True),
        (0o440, 0, 0, 0, True),
    ],
    ids=[
        "own",
        "own and read-only",
        "own, group reads",
        "own, world reads",
        "Secret of Kubernetes",
        "of root, for a further group",
        "of root, world reads",
        "of root, group writes",
        "of root, group executes",
        "of root, for a foreign group",
        "of another user",
        "the user is root",
    ],
)
def test_a_file_of_secrets_is_for_its_owner_or_from_root_for_a_group_of_the_process(
    mode: int, owner: int, group: int, user: int, exposed: bool
) -> None:
    assert is_exposed(FileMode(0o100_000 | mode, owner, group), user, (7, 8)) is exposed
