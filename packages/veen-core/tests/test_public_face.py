"""The public names, and the examples of the READMEs."""

import dataclasses
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import veen_core
from veen_core import Receipt, StreamSeq, VeenError, verify_identity, verify_inclusion
from veen_core.errors import IdentityError, QuorumError, SignatureError
from veen_core.hub_identity import sign_identity
from veen_core.ids import UnixTime
from veen_core.log_rules import RULES
from veen_core.receipt import sign_receipt
from veen_core.tlog.note import COSIGNATURE, NoteKey

from .simulator import BORN, WITNESSES, Hub, HubLog, flip, signing_key

PACKAGE = Path(__file__).parents[1]
READMES = {"veen-core": PACKAGE / "README.md", "workspace": PACKAGE.parents[1] / "README.md"}
SECTION = "## Verify a receipt and a proof"
ROTATED = "## Verify a receipt of a hub that has changed its key"
WHOLE_LOG = "## Verify a whole log"
EVIDENCE = "## Verify evidence that leads to a hub checkpoint"


def test_every_public_name_exists() -> None:
    for name in veen_core.__all__:
        assert hasattr(veen_core, name), name


def test_the_public_names_are_sorted_and_unique() -> None:
    # As ruff sorts them: constants, then classes, then functions.
    def rank(name: str) -> tuple[int, str]:
        return (0 if name.isupper() and len(name) > 1 else 1 if name[0].isupper() else 2, name)

    assert veen_core.__all__ == sorted(set(veen_core.__all__), key=rank)


def test_the_protocol_version_is_not_the_package_version() -> None:
    assert veen_core.PROTOCOL_VERSION == "0.0.1"
    assert version("veen-core") == "0.1.0"


def test_the_modules_that_the_docstring_calls_public_exist() -> None:
    text = re.search(r"so are the modules (.*?)\.\n", veen_core.__doc__ or "", re.DOTALL)
    assert text is not None
    for name in re.findall(r"``(\w+)``", text[1]):
        assert import_module(f"veen_core.{name}").__doc__


def _blocks(readme: Path, section: str) -> list[str]:
    after = readme.read_text().split(f"{section}\n", 1)[1]
    return re.findall(r"```python\n(.*?)```", re.split(r"^## ", after, flags=re.MULTILINE)[0], re.DOTALL)


@pytest.fixture
def names(hub: Hub) -> dict[str, object]:
    """The values that the example assumes, for the third of five messages."""
    hub.write("bob", b"1", b"2", b"3", b"4", b"5")
    return {
        "receipt_bytes": hub.receipt(3).encode(),
        "newest_bytes": hub.receipt(3).encode(),
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


class TestTheExampleOfAHubThatChangedItsKey:
    """The old key is retired: its old receipts verify, new ones do not."""

    @pytest.fixture
    def names(self, hub: Hub) -> dict[str, object]:
        hub.write("bob")
        hub.now = UnixTime(BORN + 1_000)
        hub.rotate_key(window_sec=60)
        hub.now = UnixTime(BORN + 5_000)
        hub.write("bob")
        return {
            "pinned": hub.identity.hub_id.hex(),
            "identity_bytes": hub.identity.encode(),
            "identity_sig": bytes(sign_identity(hub.key, hub.identity)),
            "receipt_bytes": hub.receipt(2).encode(),
        }

    def _run(self, names: dict[str, object]) -> None:
        (block,) = _blocks(READMES["veen-core"], ROTATED)
        assert len([line for line in block.splitlines() if line.strip()]) < 10
        exec(compile(block, str(READMES["veen-core"]), "exec"), dict(names))

    def test_it_accepts_receipts_of_both_keys(self, hub: Hub, names: dict[str, object]) -> None:
        self._run(names)
        self._run({**names, "receipt_bytes": hub.receipt(1).encode()})

    def test_it_refuses_a_receipt_that_the_retired_key_signs_now(
        self, hub: Hub, names: dict[str, object]
    ) -> None:
        forged = sign_receipt(hub.keys[0], hub.receipt(2)).encode()
        with pytest.raises(SignatureError, match="no key of the hub that was active"):
            self._run({**names, "receipt_bytes": forged})

    def test_it_refuses_a_record_in_which_the_retired_key_still_counts(
        self, hub: Hub, names: dict[str, object]
    ) -> None:
        old, new = hub.identity.hub_keys
        reopened = dataclasses.replace(
            hub.identity, hub_keys=(dataclasses.replace(old, valid_until=None), new)
        )
        forged = sign_receipt(hub.keys[0], hub.receipt(2)).encode()
        verify_identity(reopened, pinned=hub.identity.hub_id)  # the chain alone does not tell
        for signature in (names["identity_sig"], bytes(sign_identity(hub.keys[0], reopened))):
            told = {"identity_bytes": reopened.encode(), "identity_sig": signature, "receipt_bytes": forged}
            with pytest.raises(SignatureError, match=r"hub-identity\.sig"):
                self._run({**names, **told})

    def test_it_refuses_another_hub(self, names: dict[str, object]) -> None:
        with pytest.raises(IdentityError, match="pinned"):
            self._run({**names, "pinned": Hub(name="other").identity.hub_id.hex()})


def test_the_example_of_a_whole_log_verifies_it(hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    hub.write("bob", b"1", b"2")
    (block,) = _blocks(READMES["veen-core"], WHOLE_LOG)
    held = {"log_label": hub.label, "identity": hub.identity, "profile": hub.profile}
    chunk = b"".join(entry.encode() for entry in hub.entries)
    exec(compile(block, str(READMES["veen-core"]), "exec"), {**held, "chunk_bytes": chunk})
    assert capsys.readouterr().out == f"2 {hub.log.root.hex()} True\n"


def test_the_tour_lists_the_rules_of_a_log_as_the_code_does() -> None:
    tour = (READMES["veen-core"].parents[2] / "docs" / "core.md").read_text()
    rows = re.findall(r"^\| (§4\.8\.1|[IH]\d+) \| (.*) \|$", tour, re.MULTILINE)
    assert rows == [(rule.name, rule.says) for rule in RULES]


def test_an_unsigned_tree_size_can_move_a_message(hub: Hub) -> None:
    """Why the size must come from a signed object: a root fits more than one size."""
    hub.write("bob", b"1", b"2", b"3")
    proof, leaf = hub.proof(3, 3), hub.receipt(3).leaf_hash
    verify_inclusion(proof, hub.log.root, StreamSeq(3), leaf, 3)
    verify_inclusion(proof, hub.log.root, StreamSeq(5), leaf, 5)


@pytest.mark.parametrize("readme", READMES)
def test_every_other_python_example_runs_unchanged(readme: str) -> None:
    for section in re.findall(r"^## .*$", READMES[readme].read_text(), re.MULTILINE):
        if section not in (SECTION, ROTATED, WHOLE_LOG, EVIDENCE):
            for block in _blocks(READMES[readme], section):
                exec(compile(block, f"{READMES[readme]} {section}", "exec"), {})


class TestTheExampleOfEvidence:
    @pytest.fixture
    def names(self, hub: Hub) -> dict[str, object]:
        hub.write("bob", b"1", b"2", b"3")
        log = HubLog(hub)
        log.add_others(2)
        index = log.add_own()
        witness = NoteKey(WITNESSES[0], COSIGNATURE, signing_key(WITNESSES[0]).public)
        return {
            "pinned": hub.identity.hub_id.hex(),
            "evidence_bytes": log.evidence(2, index, log.checkpoint(WITNESSES[0])).encode(),
            "policy_bytes": f"witness w {witness.text}\nquorum w\n".encode(),
        }

    def _run(self, names: dict[str, object]) -> None:
        (block,) = _blocks(READMES["veen-core"], EVIDENCE)
        exec(compile(block, str(READMES["veen-core"]), "exec"), dict(names))

    def test_it_prints_where_the_message_is_and_since_when_a_quorum_has_cosigned(
        self, hub: Hub, names: dict[str, object], capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._run(names)
        assert capsys.readouterr().out == f"2 {hub.receipt(2).leaf_hash.hex()} {hub.now}\n"

    def test_it_refuses_evidence_that_no_quorum_cosigned(self, names: dict[str, object]) -> None:
        other = NoteKey(WITNESSES[1], COSIGNATURE, signing_key(WITNESSES[1]).public)
        with pytest.raises(QuorumError, match="0 of 1 witnesses"):
            self._run({**names, "policy_bytes": f"witness w {other.text}\nquorum w\n".encode()})
