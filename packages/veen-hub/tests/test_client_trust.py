"""Which hub the client trusts: pins, first use, rotated keys, certificates (§8.4, KEX0.1)."""

from __future__ import annotations

import dataclasses
import errno
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from veen_core import SigningKey, SigningSeed, hub_identity
from veen_core.api import CheckpointResponse
from veen_core.checkpoint import Checkpoint, sign_checkpoint
from veen_core.errors import ConfigError, IdentityError, SignatureError, StateError
from veen_core.hub_identity import HubIdentity
from veen_core.ids import HubId, HubPk, UnixTime
from veen_hub.client import PinOnFirstUse, Retry, Tls, Unreachable, connect, trust
from veen_hub.client.atomic_files import create_file
from veen_hub.client.trust import check_status
from veen_hub.ops import config as configuration
from veen_storage import rotate

from .certificates import Certificates
from .client_fixtures import QUICK, HubProcess, person, run, serving
from .client_proxy import between
from .conftest import StartHub
from .people import ADMIN, BORN, HUB_KEY, signing_key
from .serving import RunningHub, SetClock

ALICE = person("alice")
IMPATIENT = Retry(max_attempts=3, first_delay=0.01)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubProcess]:
    with serving(tmp_path_factory.mktemp("hub")) as one:
        yield one


async def greet(hub: HubProcess, trust: object, state: Path | None = None) -> None:
    async with connect(hub.url, ALICE, trust=trust, state=state, retry=QUICK) as connected:  # type: ignore[arg-type]
        await connected.stream("greetings").send("hello")


@pytest.mark.parametrize("what", ["hub_id", "hub_pk", "hub_id in hex", "hub_pk in hex", "identity"])
def test_a_hub_is_accepted_by_each_kind_of_pin(hub: HubProcess, what: str) -> None:
    pins = {
        "hub_id": hub.hub_id,
        "hub_pk": hub.identity.hub_keys[0].hub_pk,
        "hub_id in hex": hub.hub_id.hex(),
        "hub_pk in hex": hub.identity.hub_keys[0].hub_pk.hex(),
        "identity": hub.identity,
    }
    run(greet(hub, pins[what]))


@pytest.mark.parametrize("pin", [HubId(bytes(32)), "00" * 32, "not hex"], ids=["typed", "hex", "text"])
def test_another_hub_than_the_pinned_one_is_refused(hub: HubProcess, pin: object) -> None:
    with pytest.raises(IdentityError):
        run(greet(hub, pin))


def test_the_first_use_pins_and_another_hub_is_refused_later(hub: HubProcess, tmp_path: Path) -> None:
    pin = PinOnFirstUse(tmp_path / "pins" / "hub")
    run(greet(hub, pin))
    run(greet(hub, pin))
    assert Path(pin.path).stat().st_mode & 0o077 == 0
    with (
        serving(tmp_path / "other") as other,
        pytest.raises(IdentityError, match="if the hub was replaced on purpose, remove"),
    ):
        run(greet(other, pin))


def test_of_two_concurrent_first_uses_one_pins_and_the_other_is_refused(
    hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both processes see that nothing is pinned, and then both write."""
    pin = PinOnFirstUse(tmp_path / "pin")
    with serving(tmp_path / "other") as other:
        first = True

        def overtaken(path: Path, content: bytes) -> bool:
            nonlocal first
            if first:
                first = False
                run(greet(other, pin))
            return create_file(path, content)

        monkeypatch.setattr(trust, "create_file", overtaken)
        with pytest.raises(IdentityError, match="if the hub was replaced on purpose"):
            run(greet(hub, pin))
        run(greet(other, pin))
    assert [path.name for path in tmp_path.glob("pin*")] == ["pin"]


@pytest.mark.parametrize("said", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_first_use_pins_on_file_systems_without_hard_links(
    hub: HubProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: int
) -> None:
    def no_link(*_names: object) -> None:
        raise OSError(said, os.strerror(said))

    monkeypatch.setattr("os.link", no_link)
    pin = tmp_path / "pin"
    run(greet(hub, PinOnFirstUse(pin)))
    assert HubIdentity.decode(pin.read_bytes()).hub_id == hub.hub_id
    assert not create_file(pin, b"another")
    assert create_file(tmp_path / "other", b"another")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "pin"]


def test_a_damaged_pin_is_not_overwritten(hub: HubProcess, tmp_path: Path) -> None:
    (tmp_path / "pin").write_bytes(b"rubbish")
    with pytest.raises(StateError, match="cannot be read"):
        run(greet(hub, PinOnFirstUse(tmp_path / "pin")))
    assert (tmp_path / "pin").read_bytes() == b"rubbish"


def _rotate(hub: HubProcess) -> None:
    rotate(hub.directory, SigningKey(SigningSeed(os.urandom(32))), UnixTime(int(time.time()) + 1), 600)


def test_an_endorsed_new_key_is_a_successor_and_going_back_is_not(tmp_path: Path) -> None:
    pin, state = PinOnFirstUse(tmp_path / "pin"), tmp_path / "state"
    with serving(tmp_path / "hub") as hub:
        run(greet(hub, pin, state))
        hub.stop()
        with serving(tmp_path / "twin", twin_of=hub) as old:
            old.stop()
            _rotate(hub)
            hub.start()
            run(greet(hub, pin, state))
            run(greet(hub, hub.hub_id, state))
            old.start()
            with pytest.raises(IdentityError, match="a key of the earlier record is missing"):
                run(greet(old, pin))
            with pytest.raises(IdentityError, match="a key of the earlier record is missing"):
                run(greet(old, hub.hub_id, state))  # the state store remembers too


def test_a_connection_survives_a_key_rotation(tmp_path: Path) -> None:
    async def story() -> None:
        with serving(tmp_path / "hub") as hub:
            async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as connected:
                stream = connected.stream("rotation")
                await stream.send("before")
                hub.stop()
                _rotate(hub)
                hub.start()
                await stream.send("after")
                while len(connected.identity.hub_keys) < 2:  # until the new key signs
                    await stream.send("again")
                messages = [m.text async for m in stream.read()]
                assert messages[:2] == ["before", "after"]
                assert len(connected.identity.hub_keys) == 2

    run(story())


def test_a_key_is_not_ended_before_receipts_that_were_verified_under_it(start_hub: StartHub) -> None:
    hub = start_hub()
    status = hub.status()
    grown = hub_identity.rotate(
        status.identity, HUB_KEY, HubPk(signing_key("hub/1").public), UnixTime(BORN + 100), 50
    )
    shown = dataclasses.replace(
        status, identity=grown, identity_sig=hub_identity.sign_identity(signing_key("hub/1"), grown)
    )
    check_status(shown, status.identity, seen=UnixTime(BORN + 149))
    with pytest.raises(IdentityError, match="but it signed a receipt at"):
        check_status(shown, status.identity, seen=UnixTime(BORN + 150))


def test_in_a_rotation_window_a_checkpoint_needs_the_signatures_of_both_keys(start_hub: StartHub) -> None:
    """A checkpoint made before or after the window needs only the key of its time (KEX0.1)."""
    clock, new_key = SetClock(BORN), signing_key("hub/1")
    born = start_hub(gating=False, clock=clock)
    born.stop()
    rotate(born.root, new_key, UnixTime(BORN + 100), 1_000)

    async def story(hub: RunningHub) -> None:
        async with between(hub.url) as proxy:

            async def check(forge: Callable[[Checkpoint], Checkpoint] | None = None) -> int | None:
                def lie(path: str, _request: bytes, answer: bytes) -> bytes:
                    if path != "/v1/checkpoint" or forge is None:
                        return answer
                    response = CheckpointResponse.decode(answer)
                    return dataclasses.replace(response, checkpoint=forge(response.checkpoint)).encode()

                proxy.lie = lie
                async with connect(proxy.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                    found = await client.stream("rotation").checkpoint()
                    return found.upto_seq if found is not None else None

            async def grow() -> None:
                async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                    await client.stream("rotation").send("x")

            async def make() -> None:
                async with connect(hub.url, ALICE, trust=hub.hub_id, retry=QUICK) as client:
                    await client.admin(ADMIN).checkpoint()

            await grow()
            await make()
            assert await check() == 1
            clock.time = BORN + 200
            assert await check() == 1  # made before the window
            await grow()
            await make()
            assert await check() == 2
            for key in (HUB_KEY, new_key):
                with pytest.raises(SignatureError, match="the signature of witness"):
                    await check(lambda shown, key=key: sign_checkpoint(key, shown, ()))  # type: ignore[misc]
                with pytest.raises(SignatureError, match="the signature of witness"):
                    await check(lambda shown, key=key: sign_checkpoint(key, shown, (key,)))  # type: ignore[misc]
            await grow()
            clock.time = BORN + 1_200
            assert await check() == 2  # made in the window
            await make()
            assert await check() == 3  # made after it, of an entry in it
            with pytest.raises(SignatureError):
                await check(lambda shown: sign_checkpoint(HUB_KEY, shown, ()))

    run(story(start_hub(gating=False, clock=clock)))


def test_tls_needs_the_right_authority_and_certificate(tmp_path: Path) -> None:
    made = Certificates(tmp_path)
    cert, key = made.hub
    config = f"tls: {{cert: {cert}, key: {key}, client_ca: {made.authority}}}\n"
    with serving(tmp_path / "hub", config=config) as hub:
        url = hub.url.replace("http://", "https://")

        async def greet_by(tls: Tls | None) -> None:
            async with connect(url, ALICE, trust=hub.hub_id, tls=tls, retry=IMPATIENT) as connected:
                await connected.stream("secure").send("hello")

        run(greet_by(Tls(ca=made.authority, cert=made.client[0], key=made.client[1])))
        with pytest.raises(Unreachable, match="certificate"):
            run(greet_by(Tls(cert=made.client[0], key=made.client[1])))
        with pytest.raises(Unreachable):
            run(greet_by(Tls(ca=made.authority, cert=made.stranger[0], key=made.stranger[1])))
        with pytest.raises(ConfigError, match="cannot be loaded"):
            run(greet_by(Tls(ca=tmp_path / "nothing")))


def test_tls_settings_for_a_plain_http_address_are_refused(hub: HubProcess, tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match="https://"):
            async with connect(hub.url, trust=hub.hub_id, tls=Tls(ca=tmp_path / "ca.pem")):
                pass

    run(story())
    for settings in (
        {"anchor.backend": "hub", "anchor.url": hub.url, "anchor.ca": "ca.pem"},
        {"realm": {"id": "r", "key": "k", "url": hub.url, "pinned": hub.hub_id.hex(), "ca": "ca.pem"}},
        {"authority_url": hub.url, "authority_ca": "ca.pem"},
    ):
        with pytest.raises(ConfigError, match=r"ca: has no effect unless"):
            configuration.load(None, settings)


def test_the_error_of_an_address_without_a_hub_names_the_next_step(tmp_path: Path) -> None:
    async def story() -> None:
        async with connect("http://127.0.0.1:9", ALICE, trust="00" * 32, retry=IMPATIENT):
            pass

    with pytest.raises(Unreachable, match=r"gave up after .* attempt.* check that the hub runs"):
        run(story())
    with pytest.raises(ConfigError, match="is not an http:// or https:// address"):
        run(_bad_address())
    del tmp_path


async def _bad_address() -> None:
    async with connect("ftp://somewhere", ALICE, trust="00" * 32):
        pass
