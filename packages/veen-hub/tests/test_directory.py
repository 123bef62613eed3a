"""``veen-hub --init`` and ``--rotate``: a hub made and given its next key by the program that runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from veen_hub import main as program
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
