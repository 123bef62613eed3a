from importlib.metadata import metadata, requires
from importlib.resources import files

import veen_core


def test_the_distribution_has_its_metadata() -> None:
    about = metadata("veen-core")
    assert about["Version"] == "0.1.0"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_its_types_are_published() -> None:
    assert files(veen_core).joinpath("py.typed").is_file()


def test_it_depends_on_no_sibling() -> None:
    assert not [line for line in requires("veen-core") or [] if line.startswith("veen-")]
