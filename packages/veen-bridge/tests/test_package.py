from importlib.metadata import metadata
from importlib.resources import files

import veen_bridge


def test_the_distribution_says_what_it_is() -> None:
    about = metadata("veen-bridge")
    assert about["Version"] == "0.1.0"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_its_types_are_published() -> None:
    assert files(veen_bridge).joinpath("py.typed").is_file()
