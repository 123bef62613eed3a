"""The verifier page in a real browser: verdicts, the drawn path, keys that stay, text that stays text."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core import SigningKey, SigningSeed, hub_log
from veen_core.ciphertext import Binding
from veen_core.hashing import H
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_identity import HubIdentity, HubKey, key_id
from veen_core.ids import ClientId, ClientSeq, HubPk, Label, StreamSeq, UnixTime
from veen_core.keys import DhKey, DhSecret
from veen_core.msg import seal_msg
from veen_core.payload import PayloadHeader
from veen_core.profile import DEFAULT_PROFILE
from veen_core.receipt import sign_receipt
from veen_core.stream import hub_id
from veen_core.tlog import tree
from veen_core.tlog.note import COSIGNATURE, Note, NoteKey, cosign, sign_note
from veen_core.tlog.tree_head import TreeHead
from veen_hub.web.verifier_page import page_with_evidence, verifier_page

from .conftest import PATIENCE_MS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

VECTORS = Path(__file__).parents[3] / "veen-core" / "tests" / "vectors"
AGREEMENT = Path(__file__).parents[2] / "web" / "agreement"
HOSTILE = "<img src=x onerror=alert(1)>\u202egnp.txt\u0007"
READER = DhKey(DhSecret(H(b"reader")))

OpenPage = Callable[..., "Page"]


def vector(name: str) -> tuple[bytes, dict[str, Any]]:
    folder = VECTORS / name
    context = json.loads((folder / "context.json").read_text())
    return bytes.fromhex((folder / "wire.hex").read_text()), context


@pytest.fixture
def open_page(browser: Browser, tmp_path: Path) -> Iterator[OpenPage]:
    """``open_page(content)``: the page from disk; at the end it has asked for nothing and stored nothing."""
    context = browser.new_context(viewport={"width": 1000, "height": 900})
    context.set_default_timeout(PATIENCE_MS)
    requests: list[str] = []
    said: list[str] = []
    pages: list[Page] = []

    def opened(content: bytes | None = None) -> Page:
        file = tmp_path / "page.html"
        file.write_bytes(verifier_page() if content is None else content)
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(f"dialog {dialog.message}"))
        page.goto(file.as_uri())
        pages.append(page)
        return page

    yield opened
    for page in pages:
        stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
        assert stored == '[{},{},""]'
    context.close()
    assert requests == [(tmp_path / "page.html").as_uri()] * len(pages)
    assert said == []


def drop(page: Page, **files: bytes) -> None:
    page.locator("#picker").set_input_files(
        [{"name": name, "mimeType": "", "buffer": content} for name, content in files.items()]
    )


OVERLAPS = """() => {
    const boxes = [...document.querySelectorAll(".path :is(.section, .seal rect, .node rect, .sibling rect)")]
        .map(each => [each, each.getBoundingClientRect()]);
    return boxes.flatMap(([one, a], at) => boxes.slice(at + 1)
        .filter(([, b]) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom)
        .map(([other]) => `${one.outerHTML} and ${other.outerHTML}`));
}"""


def test_evidence_holds_and_every_hash_on_its_path_is_computed_again(open_page: OpenPage) -> None:
    wire, context = vector("hub_evidence/two_of_two")
    page = open_page()
    page.locator("#hub").fill(context["pinned"])
    drop(page, **{"message.evidence": wire, "policy.txt": context["policy"].encode()})
    page.get_by_role("heading", name="It holds, if the witness policy is the right one.").wait_for()
    page.locator("#confirmed").check()
    page.get_by_role("heading", name="This holds.").wait_for()
    assert page.locator(".steps li").last.inner_text().startswith("2 of 2 witnesses cosigned it")
    nodes = page.locator(".path .node")
    assert nodes.count() >= 3
    assert page.evaluate(OVERLAPS) == []
    for number in range(nodes.count()):
        nodes.nth(number).click()
        page.locator(".recompute .outcome.holds, .recompute p.quiet").first.wait_for()
    assert page.locator(".path .seal").count() == 4, "receipt, hub log and two witnesses"
    for number in range(4):
        page.locator(".path .seal").nth(number).click()
        page.get_by_text("Verified again just now").wait_for()
        assert page.locator(".recompute .outcome.holds").count() == 1


def one_entry_log(evidence: HubEvidence) -> tuple[HubEvidence, str]:
    """The same message in a hub log of one entry, with two cosignatures; and the witness policy."""
    hub, *witnesses = (SigningKey(SigningSeed(H(name))) for name in (b"hub", b"alice", b"bob"))
    key = HubKey(key_id=key_id(HubPk(hub.public)), hub_pk=HubPk(hub.public), valid_from=UnixTime(1))
    identity = HubIdentity(hub_id=hub_id(key.hub_pk), hub_keys=(key,))
    root = tree.leaf_hash(evidence.head.encode())
    text = TreeHead(hub_log.origin_of(identity.hub_id), 1, root).text
    names = ("alice.example/w", "bob.example/w")
    cosigned = [
        cosign(key, name, text, evidence.head.hub_ts) for key, name in zip(witnesses, names, strict=True)
    ]
    note = Note(text, (sign_note(hub, hub_log.origin_of(identity.hub_id), text), *cosigned))
    lines = [
        f"witness {name[:3]} {NoteKey(name, COSIGNATURE, key.public).text}\n"
        for key, name in zip(witnesses, names, strict=True)
    ]
    made = dataclasses.replace(
        evidence,
        identity=identity,
        receipt=sign_receipt(hub, evidence.receipt),
        index=0,
        head_proof=(),
        checkpoint=note.encode(),
    )
    return made, "".join(lines) + "group both all ali bob\nquorum both\n"


@pytest.mark.parametrize("width", [1000, 390])
def test_signatures_hashes_and_headings_of_the_drawing_do_not_overlap(
    open_page: OpenPage, width: int
) -> None:
    wire, _context = vector("hub_evidence/two_of_two")
    evidence, policy = one_entry_log(HubEvidence.decode(wire))
    page = open_page()
    page.set_viewport_size({"width": width, "height": 900})
    page.locator("#hub").fill(evidence.identity.hub_id.hex())
    drop(page, **{"message.evidence": evidence.encode(), "policy.txt": policy.encode()})
    page.locator("#confirmed").check()
    page.get_by_role("heading", name="This holds.").wait_for()
    page.locator(".path .seal").nth(3).wait_for()
    assert page.evaluate(OVERLAPS) == []


def test_altered_evidence_is_red_and_names_the_rule(open_page: OpenPage) -> None:
    wire, context = vector("hub_evidence/without_a_policy")
    evidence = HubEvidence.decode(wire)
    later = dataclasses.replace(evidence.receipt, hub_ts=UnixTime(evidence.receipt.hub_ts + 1))
    page = open_page()
    page.locator("#hub").fill(context["pinned"])
    drop(page, **{"message.evidence": dataclasses.replace(evidence, receipt=later).encode()})
    page.get_by_role("heading", name="This does not hold.").wait_for()
    assert page.locator(".rule strong").inner_text() == "core §4.3, §8.4"
    assert page.locator(".path").count() == 0


@pytest.fixture(scope="module")
def corpus() -> Any:
    """The modules of ``web/agreement``: cases of evidence, and what ``veen verify`` says of them."""
    sys.path.insert(0, str(AGREEMENT))
    import cases  # noqa: PLC0415 - of another folder
    import queries  # noqa: PLC0415
    import verdicts  # noqa: PLC0415

    found = {case.name: case for case in cases.vectors()} | {case.name: case for case, _ in queries.results()}
    changed = queries.changed(queries.results()[:1], 1, 3)
    return found | {"query changed": next(iter(changed))}, verdicts.judge


@pytest.mark.parametrize(
    "name",
    [
        *(
            "receipt/first",
            "receipt/hub_ts_changed_fail",
            "checkpoint/eight_items",
            "checkpoint/other_hub_fail",
        ),
        *("hub_evidence/two_of_two", "equivocation/same_key_of_a_known_hub", "equivocation/forged_fail"),
        *("bundle/two_parts", "bundle/two_parts without its last part", "label_fork/", "hub_log_fork/"),
        *("query full, with hub checkpoints", "query changed", "msg/sig_flipped_fail", "cap_token/"),
    ],
)
def test_verdicts_and_rules_on_the_page_are_those_of_veen_verify(
    open_page: OpenPage, corpus: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    found, judge = corpus
    start, _, without = name.partition(" without ")
    case = next(
        case for each, case in sorted(found.items()) if each.removeprefix("vectors/").startswith(start)
    )
    if without:
        case = dataclasses.replace(case, files=dict(list(case.files.items())[:-1]))
    case = dataclasses.replace(case, expect=[])
    monkeypatch.chdir(tmp_path)  # where the judge works
    judge(case, tmp_path)
    page = open_page()
    page.locator("#hub").fill(case.trust.hex() if case.trust else "")
    page.locator("#more summary").click()
    page.locator("#policy").fill(case.policy or "")
    drop(page, **case.files)
    page.locator(".summary").wait_for()
    words = {True: "holds", False: "does not hold", None: "not decided"}
    wanted = sorted((each["kind"], words[each["holds"]], each["why"].split(";")[0]) for each in case.expect)
    shown = []
    for number in range(page.locator(".card").count()):
        card = page.locator(".card").nth(number)
        badge = card.locator(".badge").inner_text().splitlines()[-1]
        shown.append(
            (card.locator("h3").inner_text(), badge, card.locator(".why").inner_text().split(";")[0])
        )
    assert sorted(shown) == wanted


def test_a_mailed_page_holds_only_once_its_reader_has_confirmed_the_hub(open_page: OpenPage) -> None:
    wire, context = vector("hub_evidence/without_a_policy")
    mailed = page_with_evidence({HOSTILE: wire}, hub_id=context["pinned"], policy=None)
    page = open_page(mailed)
    page.get_by_role("heading", name="It holds, if the hub is the right one.").wait_for()
    assert page.locator("img").count() == 0
    assert "<img src=x onerror=alert(1)><U+202E>gnp.txt<U+0007>" in page.locator(".card .file").inner_text()
    page.locator("#confirmed").check()
    page.get_by_role("heading", name="This holds.").wait_for()
    own = open_page()
    drop(own, **{"mailed.html": mailed})
    own.get_by_role("heading", name="It holds, if the hub is the right one.").wait_for()


def test_a_senders_policy_neither_names_the_hub_nor_replaces_that_of_the_reader(open_page: OpenPage) -> None:
    wire, context = vector("hub_evidence/two_of_two")
    evidence = HubEvidence.decode(wire)
    [log] = hub_log.note_keys(evidence.identity, evidence.signed_head.head.origin)
    weak = f"log {log.text}\nquorum none\n"
    page = open_page(page_with_evidence({"evil.evidence": wire}, hub_id=None, policy=weak))
    page.get_by_role("heading", name="Something is missing to decide.").wait_for()
    assert page.locator("#hub").input_value() == page.locator("#policy").input_value() == ""
    page.locator("#hub").fill(context["pinned"])
    page.get_by_role("heading", name="It holds, if the witness policy is the right one.").wait_for()
    own = open_page()
    own.locator("#hub").fill(context["pinned"])
    own.locator("#more summary").click()
    stranger = NoteKey(name="carol.example/w", kind=COSIGNATURE, public=log.public)
    own.locator("#policy").fill(f"witness carol {stranger.text}\nquorum carol\n")
    drop(own, **{"mailed.html": page_with_evidence({"m.evidence": wire}, hub_id=None, policy="quorum none")})
    own.get_by_role("heading", name="This does not hold.").wait_for()
    assert "no quorum" in own.locator(".card.fails").inner_text()
    assert "quorum none" in own.locator("#proposed").inner_text()
    assert not own.locator("#confirmed").is_visible()


def test_a_file_that_cannot_be_read_removes_the_verdict_and_is_named(open_page: OpenPage) -> None:
    wire, context = vector("hub_evidence/without_a_policy")
    page = open_page()
    page.locator("#hub").fill(context["pinned"])
    drop(page, **{"message.evidence": wire})
    page.get_by_role("heading", name="This holds.").wait_for()
    page.evaluate("void (Blob.prototype.arrayBuffer = () => Promise.reject(new Error('gone')))")
    drop(page, **{"gone.evidence": wire})
    page.get_by_role("heading", name="1 of 2 do not hold.").wait_for()
    assert "this file was not read" in page.locator(".card.fails").inner_text()


def test_a_message_opens_with_a_reader_key_and_its_text_stays_text(open_page: OpenPage) -> None:
    key = SigningKey(SigningSeed(H(b"writer")))
    binding = Binding(
        profile_id=DEFAULT_PROFILE.profile_id,
        label=Label(H(b"label")),
        client_id=ClientId(key.public),
        client_seq=ClientSeq(1),
        prev_ack=StreamSeq(0),
    )
    sealed = seal_msg(
        key,
        READER.public,
        binding,
        PayloadHeader(schema=H(b"text")),
        b"<b>two coffees</b>\n\tand cake",
        profile=DEFAULT_PROFILE,
        ephemeral=DhSecret(H(b"ephemeral")),
    )
    page = open_page()
    drop(page, **{"message.cbor": sealed.wire})
    page.get_by_role("heading", name="This holds.").wait_for()
    page.locator("#more summary").click()
    page.locator("#reader").fill(bytes(READER.secret).hex())
    page.get_by_text("Opened with your reader key").wait_for()
    assert page.locator(".opened pre").inner_text() == "<b>two coffees</b>\n<U+0009>and cake"
    page.locator("#reader").fill(H(b"another").hex())
    page.get_by_text("the payload header does not open").wait_for()


def test_without_the_hubs_id_nothing_is_decided_and_the_page_says_what_to_do(open_page: OpenPage) -> None:
    wire, _context = vector("hub_evidence/without_a_policy")
    page = open_page()
    drop(page, **{"message.evidence": wire})
    page.get_by_role("heading", name="Something is missing to decide.").wait_for()
    assert "enter this id" in page.locator(".hint").inner_text()
    page.locator("#hub").fill("not an id")
    page.get_by_text("A hub's id has 64 hexadecimal digits").wait_for()
