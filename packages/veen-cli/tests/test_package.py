from importlib.metadata import metadata, requires
from importlib.resources import files

import veen_cli


def test_the_distribution_says_what_it_is() -> None:
    about = metadata("veen-cli")
    assert about["Version"] == veen_cli.__version__ == "0.1.0"
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    assert "Typing :: Typed" in about.get_all("Classifier", [])


def test_the_package_ships_its_types() -> None:
    assert files(veen_cli).joinpath("py.typed").is_file()


def test_the_package_requires_exactly_the_siblings_it_may_import() -> None:
    siblings = {
        line for line in requires("veen-cli") or [] if line.startswith("veen-") and "extra ==" not in line
    }
    assert siblings == {"veen-core==0.1.0", "veen-storage==0.1.0", "veen-hub==0.1.0", "veen-overlays==0.1.0"}
