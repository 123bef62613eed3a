import subprocess
import sys
from importlib.metadata import metadata, requires
from importlib.resources import files
from pathlib import Path

import pytest

import veen_storage
from veen_core.ciphertext import Binding
from veen_core.ids import ClientId, ClientSeq, StreamSeq
from veen_core.msg import sign_msg
from veen_core.profile import DEFAULT_PROFILE

from .sample import ORDERS, ciphertext, signing_key


def test_the_distribution_has_its_metadata() -> None:
    about = metadata("veen-storage")
    assert about["Version"] == "0.1.0"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_the_package_publishes_its_types() -> None:
    assert files(veen_storage).joinpath("py.typed").is_file()


def test_the_package_requires_exactly_the_siblings_it_may_import() -> None:
    siblings = {line for line in requires("veen-storage") or [] if line.startswith("veen-")}
    assert siblings == {"veen-core==0.1.0"}


def test_the_public_names_are_exactly_those_declared() -> None:
    for name in veen_storage.__all__:
        assert getattr(veen_storage, name) is not None
    assert sorted(veen_storage.__all__) == sorted(veen_storage._MODULE_OF)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        veen_storage.nonsense  # noqa: B018


def test_importing_the_errors_does_not_import_lmdb() -> None:
    """Every command of the command line knows the errors; few of them open a data directory."""
    script = (
        "import sys, veen_storage.errors; from veen_storage import StorageError; print('lmdb' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_example_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
    example = readme.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=ORDERS,
        client_id=ClientId(signing_key("alice").public),
        client_seq=ClientSeq(1),
        prev_ack=StreamSeq(0),
        auth_ref=None,
    )
    msg = sign_msg(signing_key("alice"), binding, ciphertext(b"two coffees"))
    values = {"random_32_bytes": bytes(range(32)), "msg": msg}
    exec(example, values)
    assert values["receipt"].leaf_hash == msg.leaf_hash
