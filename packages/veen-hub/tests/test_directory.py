"""``veen-hub --init`` and ``--rotate``: a hub made and given its next key by the program that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_core.keys import SigningKey, SigningSeed
from veen_hub import main as program
from veen_storage import Files
from veen_storage.disk.hub_keys import write_key
from veen_storage.fsck import fsck

from .people import ADMIN
from .serving import HubProcess


def prepare(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert program.main(arguments) == 0
    return capsys.readouterr().out.split()[-1]


def test_a_directory_that_the_program_made_is_served_and_its_key_rotated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, config = tmp_path / "data", tmp_path / "hub.yaml"
    config.write_text("limits: {max_msg_bytes: 4096}\n")
    where = (f"--data-dir={root}", f"--config={config}")
    hub_id = prepare(capsys, "--init", f"--admin={ADMIN.public.hex()}", "--profile=rotating", *where)
    hub = HubProcess(root, f"--config={config}")
    status = hub.status()
    assert hub.admin("/tooling/checkpoint").status == 200
    assert hub.stop() == 0
    assert status.identity.hub_id.hex() == hub_id
    assert (status.profile.epoch_sec, status.limits.max_msg_bytes) == (60, 4_096)

    hub_pk = prepare(capsys, "--rotate", "--window=60", *where)
    hub = HubProcess(root, f"--config={config}")
    first, second = hub.status().identity.hub_keys
    assert hub.stop() == 0
    assert second.hub_pk.hex() == hub_pk
    assert first.valid_until == second.valid_from + 60
    assert fsck(root).faults == []


@pytest.mark.parametrize(
    ("wrong", "says"),
    [(["--init", "--admin=xy"], "--admin: "), (["--init"], "is not empty"), (["--rotate"], "is not a VEEN")],
    ids=["a key that is none", "a folder in use", "no directory to rotate"],
)
def test_a_failed_init_or_rotate_is_a_one_line_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: list[str], says: str
) -> None:
    (tmp_path / "something").write_text("here")
    assert program.main([*wrong, f"--data-dir={tmp_path}"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with one hub key, as a Secret that is mounted."""
    folder = tmp_path / "keys"
    write_key(Files(), folder, SigningKey(SigningSeed(bytes(32))))
    return folder


def test_a_hub_that_lost_its_volume_keeps_the_identity_of_its_key(tmp_path: Path, keys: Path) -> None:
    flags = (f"--keys-dir={keys}", "--init-if-missing", f"--admin={ADMIN.public.hex()}")
    found = []
    for volume in ("first", "first", "second"):
        hub = HubProcess(tmp_path / volume, *flags)
        found.append(hub.status().identity)
        assert hub.stop() == 0
    assert found[0] == found[1], "a second start changes nothing"
    assert found[0].hub_id == found[2].hub_id
    assert len(list(keys.iterdir())) == 1


def test_a_restart_with_one_more_key_rotates_to_it_once(tmp_path: Path, keys: Path) -> None:
    root = tmp_path / "data"
    flags = (f"--keys-dir={keys}", "--init-if-missing", "--rotate-if-new", "--window=60")
    assert HubProcess(root, *flags).stop() == 0
    new = SigningKey(SigningSeed(bytes([1]) * 32))
    write_key(Files(), keys, new)
    for _restart in range(2):
        hub = HubProcess(root, *flags)
        first, second = hub.status().identity.hub_keys
        assert hub.stop() == 0
        assert second.hub_pk == new.public
        assert first.valid_until == second.valid_from + 60
    assert fsck(root).faults == []


@pytest.mark.parametrize(
    ("count", "flag", "says"),
    [
        (0, "--init-if-missing", "has 0 hub keys"),
        (2, "--init-if-missing", "has 2 hub keys"),
        (3, "--rotate-if-new", "has 2 keys that the hub does not have yet"),
    ],
    ids=["no key", "which key is first", "which key is next"],
)
def test_a_start_that_would_have_to_guess_a_key_is_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], count: int, flag: str, says: str
) -> None:
    where = (f"--data-dir={tmp_path / 'data'}", f"--keys-dir={tmp_path / 'keys'}")
    folder = tmp_path / "keys"
    folder.mkdir()
    for number in range(count):
        write_key(Files(), folder, SigningKey(SigningSeed(bytes([number]) * 32)))
        if number == 0 and flag == "--rotate-if-new":
            hub = HubProcess(tmp_path / "data", where[1], "--init-if-missing")
            assert hub.stop() == 0
    assert program.main([flag, *where]) == 1
    assert says in capfd.readouterr().err
