from importlib.metadata import metadata, requires
from importlib.resources import files

import veen_overlays


def test_the_distribution_says_what_it_is() -> None:
    about = metadata("veen-overlays")
    assert about["Version"] == "0.1.0"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_its_types_are_published() -> None:
    assert files(veen_overlays).joinpath("py.typed").is_file()


def test_it_requires_the_siblings_it_may_import_and_no_others() -> None:
    siblings = {line for line in requires("veen-overlays") or [] if line.startswith("veen-")}
    assert siblings == {"veen-core==0.1.0"}
