import os
import subprocess
import sys
from importlib.metadata import metadata, requires
from importlib.resources import files
from pathlib import Path

import pytest

import veen_hub
from veen_hub import client

IMPORT_EACH_ALONE = """
import importlib, sys
for name in sys.argv[1:]:
    for loaded in [each for each in sys.modules if each.startswith("veen_hub")]:
        del sys.modules[loaded]
    importlib.import_module(name)
"""


def test_the_distribution_says_what_it_is() -> None:
    about = metadata("veen-hub")
    assert about["Version"] == "0.1.0"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_its_types_are_published() -> None:
    assert files(veen_hub).joinpath("py.typed").is_file()


def test_it_requires_the_siblings_it_may_import_and_no_others() -> None:
    siblings = {line for line in requires("veen-hub") or [] if line.startswith("veen-")}
    assert siblings == {"veen-core==0.1.0", "veen-storage==0.1.0"}


def test_every_public_name_of_the_client_exists() -> None:
    for name in client.__all__:
        assert hasattr(client, name), name
    assert sorted(client.__all__) == sorted(client._MODULE_OF)


def test_a_name_that_the_client_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'conect'"):
        client.conect  # noqa: B018 - the access is the test


def test_every_module_of_the_client_can_be_imported_first(tmp_path: Path) -> None:
    root = Path(client.__file__).parent
    names = [
        ".".join(("veen_hub.client", *file.relative_to(root).with_suffix("").parts))
        for file in sorted(root.rglob("*.py"))
        if file.name != "__init__.py"
    ]
    keep_bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path)}
    subprocess.run(
        [sys.executable, "-c", IMPORT_EACH_ALONE, *names], check=True, env={**os.environ, **keep_bytecode}
    )
