"""The names people import, and the examples people copy."""

import dataclasses
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import veen_core
from veen_core import Receipt, VeenError

from .simulator import Hub, flip

PACKAGE = Path(__file__).parents[1]
READMES = {"veen-core": PACKAGE / "README.md", "workspace": PACKAGE.parents[1] / "README.md"}
SECTION = "## Verify a receipt and a proof"


def test_every_public_name_exists() -> None:
    for name in veen_core.__all__:
        assert hasattr(veen_core, name), name


def test_the_public_names_are_sorted_and_unique() -> None:
    # As ruff sorts them: constants, then classes, then functions.
    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)

    assert veen_core.__all__ == sorted(set(veen_core.__all__), key=rank)


def test_the_protocol_version_is_not_the_packages() -> None:
    assert veen_core.PROTOCOL_VERSION == "0.0.1"
    assert version("veen-core") == "0.1.0"


def test_the_modules_the_docstring_calls_public_are_there() -> None:
    text = re.search(r"the modules (.*?) are public too", veen_core.__doc__ or "", re.DOTALL)
    assert text is not None
    for name in re.findall(r"``(\w+)``", text[1]):
        assert import_module(f"veen_core.{name}").__doc__


def _blocks(readme: Path, section: str) -> list[str]:
    after = readme.read_text().split(f"{section}\n", 1)[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"^## ", after, flags=re.MULTILINE)[0], re.DOTALL)


@pytest.fixture
def names(hub: Hub) -> dict[str, object]:
    """What the example says you hold: of the third message of five."""
    hub.write("bob", b"1", b"2", b"3", b"4", b"5")
    return {
        "receipt_bytes": hub.receipt(3).encode(),
        "proof_bytes": hub.proof(3).encode(),
        "pinned": hub.hub_pk.hex(),
    }


@pytest.mark.parametrize("readme", READMES)
class TestTheVerificationExample:
    def _run(self, readme: str, names: dict[str, object]) -> None:
        (block,) = _blocks(READMES[readme], SECTION)
        exec(compile(block, str(READMES[readme]), "exec"), dict(names))

    def test_it_fits_in_ten_lines(self, readme: str) -> None:
        (block,) = _blocks(READMES[readme], SECTION)
        assert len([line for line in block.splitlines() if line.strip()]) <= 10

    def test_it_accepts_what_the_hub_signed(self, readme: str, names: dict[str, object]) -> None:
        self._run(readme, names)

    @pytest.mark.parametrize("at", range(0, 140, 7))
    def test_it_refuses_a_tampered_proof(self, readme: str, names: dict[str, object], at: int) -> None:
        tampered = flip(names["proof_bytes"], at % len(names["proof_bytes"]))
        with pytest.raises(VeenError):
            self._run(readme, {**names, "proof_bytes": tampered})

    def test_it_refuses_a_tampered_receipt(self, readme: str, names: dict[str, object]) -> None:
        receipt = Receipt.decode(names["receipt_bytes"])
        tampered = dataclasses.replace(receipt, hub_ts=receipt.hub_ts + 1).encode()
        with pytest.raises(VeenError):
            self._run(readme, {**names, "receipt_bytes": tampered})

    def test_it_refuses_another_hub(self, readme: str, names: dict[str, object]) -> None:
        with pytest.raises(VeenError):
            self._run(readme, {**names, "pinned": Hub(name="other").hub_pk.hex()})

    def test_it_refuses_the_proof_of_another_message(
        self, readme: str, hub: Hub, names: dict[str, object]
    ) -> None:
        with pytest.raises(VeenError):
            self._run(readme, {**names, "proof_bytes": hub.proof(4).encode()})


@pytest.mark.parametrize("readme", READMES)
def test_every_other_python_example_runs_as_it_stands(readme: str) -> None:
    for section in re.findall(r"^## .*$", READMES[readme].read_text(), re.MULTILINE):
        if section != SECTION:
            for block in _blocks(READMES[readme], section):
                exec(compile(block, f"{READMES[readme]} {section}", "exec"), {})
