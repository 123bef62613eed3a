"""The console against a healthy hub: it shows what holds, asks only its own origin, and keeps secrets."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core.hub_evidence import HubEvidence, verify_evidence
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import COSIGNATURE, NoteKey

if TYPE_CHECKING:
    from playwright.sync_api import Page

SCREENS = (
    "overview",
    "streams",
    "identities",
    "trust",
    "capabilities",
    "revocations",
    "replicas",
    "bridges",
    "records",
    "operations",
    "audit",
)


def go(page: Page, *parts: str | int) -> None:
    page.evaluate("where => { location.hash = where }", "#/" + "/".join(map(str, parts)))


def test_nothing_is_shown_before_a_person_has_confirmed_the_hub(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, confirm=False, fragment="#/streams")
    page.get_by_label("The hub_id or first hub_pk that you expect").fill("00" * 32)
    page.get_by_role("button", name="Compare and open").click()
    assert "another hub" in page.get_by_role("alert").first.inner_text()
    assert page.locator(".message-row, .labels").count() == 0
    page.get_by_label("The hub_id or first hub_pk that you expect").fill(healthy.hub_id.hex())
    page.get_by_role("button", name="Compare and open").click()
    page.locator(".labels a").first.wait_for()


def test_the_overview_shows_health_stages_and_the_verified_checkpoint(
    open_console: Any, healthy: Any
) -> None:
    page = open_console(healthy.url)
    page.locator(".stages tbody tr").nth(2).wait_for()
    page.get_by_text("the list is complete").wait_for()
    text = page.locator("main").inner_text()
    assert re.search(r"Ready\s+yes", text)
    assert re.search(r"Hub checkpoint\s+✓\s*verified", text)
    assert re.search(r"Free\s+.* of ", text)


def test_rows_are_verified_confirmed_and_opened_with_a_local_key(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url)
    go(page, "streams", healthy.label("orders"))
    page.get_by_text("confirmed by the hub checkpoint up to 40").wait_for()
    page.locator(".keys summary").click()
    page.locator(".keys input[type=password]").fill(healthy.reader_key)
    page.get_by_role("button", name="Use", exact=True).click()
    page.get_by_text("order 40: two coffees").wait_for()
    assert page.locator(".message-row.fails").count() == 0
    page.get_by_placeholder("opened text contains …").first.fill("order 7:")
    page.get_by_text("1 of 40 rows").wait_for()
    stored = page.evaluate("JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie])")
    assert stored == '[{},{},""]'
    page.traffic.check(healthy.reader_key, healthy.reader_key[:16])


def test_a_new_message_appears_live(open_console: Any, healthy: Any) -> None:
    healthy.send("live", ["first"])
    page = open_console(healthy.url)
    go(page, "streams", healthy.label("live"))
    page.locator(".message-row").first.wait_for()
    healthy.send("live", ["second"])
    page.locator(".message-row .seq", has_text="2").wait_for()
    page.get_by_text("confirmed by the hub checkpoint up to 2, by the label's checkpoint up to 2").wait_for()


def test_a_link_leads_to_a_row_in_the_middle_whose_place_is_proven(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, fragment=f"#/streams/{healthy.label('orders')}/30")
    page.locator(".message-row .seq", has_text="30").wait_for()
    page.get_by_text("11 of 11 rows").wait_for()
    page.locator(".jump").fill("2020-01-01 00:00")
    page.get_by_role("button", name="Go", exact=True).click()
    page.get_by_text("40 of 40 rows").wait_for()
    assert page.locator(".message-row.fails").count() == 0


def test_a_message_is_proven_up_to_the_checkpoint_and_the_evidence_verifies(
    open_console: Any, healthy: Any
) -> None:
    page = open_console(healthy.url, fragment=f"#/message/{healthy.label('orders')}/13")
    page.get_by_text("verified and confirmed").wait_for()
    assert page.locator(".path li.checkpoint").count() == 1
    assert page.locator(".checks .badge.holds").count() == 8
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the evidence").click()
    evidence = HubEvidence.decode(Path(download.value.path()).read_bytes())
    verify_evidence(evidence, pinned=healthy.hub_id)
    assert evidence.receipt.stream_seq == 13


def test_the_trust_screen_shows_the_pin_the_keys_and_unverified_cosignatures(
    open_console: Any, healthy: Any
) -> None:
    page = open_console(healthy.url, fragment="#/trust")
    page.get_by_text("the first key: its hash is the hub_id").wait_for()
    page.get_by_text("no key given").first.wait_for()
    assert (
        page.locator(".fingerprint").inner_text().replace("\n", "").replace(" ", "") == healthy.hub_id.hex()
    )


def test_capabilities_are_verified_from_their_issuer(open_console: Any, healthy: Any) -> None:
    token = healthy.authorize("bearer", "orders", "<b>bold</b>")
    page = open_console(healthy.url, fragment="#/capabilities")
    page.locator(".token-row", has_text=token.auth_ref.hex()[:8]).click()
    page.get_by_text("3,600").or_(page.get_by_text("1 h 0 min from")).first.wait_for()
    page.get_by_role("button", name="Ask the hub").click()
    page.get_by_text("The hub says, unsigned: known").wait_for()
    page.get_by_role("button", name="Show the proof").click()
    page.get_by_text("verified and confirmed").wait_for()
    page.locator(".checks li", has_text="Token").get_by_text("core §6").wait_for()


def test_the_replica_screen_says_what_the_hub_is(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, fragment="#/replicas")
    page.get_by_text("This hub was not handed over.").wait_for()
    page.get_by_text("Replicas connected").wait_for()


def test_the_audit_lists_requests_and_decisions(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, fragment="#/audit")
    page.get_by_label("Kind").select_option("trust")
    page.get_by_text(f"hub_id {healthy.hub_id.hex()} confirmed by the person").wait_for()
    page.get_by_label("Kind").select_option("request")
    page.get_by_text("GET /v1/status → 200").first.wait_for()


def test_ten_thousand_rows_scroll_without_stutter(open_console: Any, healthy: Any) -> None:
    healthy.submit_many("many", 10_000)
    page = open_console(healthy.url, fragment=f"#/streams/{healthy.label('many')}/1")
    page.get_by_text("10,000 of 10,000 rows").wait_for(timeout=60_000)
    assert page.locator(".message-row.fails").count() == 0
    debugger = page.context.new_cdp_session(page)
    debugger.send(
        "Performance.enable", {"timeDomain": "threadTicks"}
    )  # processor time: others use this machine

    def main_thread_ms() -> float:
        found = {each["name"]: each["value"] for each in debugger.send("Performance.getMetrics")["metrics"]}
        return float(found["TaskDuration"]) * 1_000

    before = main_thread_ms()
    rows = page.evaluate(
        """async () => {
            const list = document.querySelector(".virtual-list");
            for (let step = 0; step < 60; step += 1) {
                list.scrollTop = (list.scrollHeight * step) / 60;
                await new Promise(requestAnimationFrame);
            }
            return document.querySelectorAll(".message-row").length;
        }"""
    )
    frame_ms = (main_thread_ms() - before) / 60
    assert rows < 60, "only rows in view are in the document"
    assert frame_ms < 16.7, f"a frame of scrolling takes {frame_ms:.1f} ms of the main thread"


HOSTILE = [
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 1'>",
    "\u202egpj.exe\u202c \u0000\u0007\u001b[31m",
    "</script><svg onload=window.hacked=1>",
    "javascript:window.hacked=1",
]


def test_hostile_names_and_texts_stay_text(open_console: Any, healthy: Any) -> None:
    name = "<img src=x onerror=window.hacked=1>\u202e"
    healthy.send(name, HOSTILE)
    page = open_console(healthy.url, fragment="#/streams")
    page.locator("input[data-search]").fill(name)
    page.get_by_role("button", name="Open", exact=True).click()
    page.locator(".message-row").nth(4).wait_for()
    page.locator(".keys summary").click()
    page.locator(".keys input[type=password]").fill(healthy.reader_key)
    page.get_by_role("button", name="Use", exact=True).click()
    page.locator(".content", has_text="window.hacked = 1</script>").wait_for()
    shown = page.locator("main").inner_text()
    assert "\u202e" not in shown
    assert "<U+202E>gpj.exe" in shown
    go(page, "message", healthy.label(name), 2)
    page.locator(".body", has_text="onerror").wait_for()
    for screen in ("records", "operations", "revocations", "bridges"):
        go(page, screen, "%3Cimg%20src%3Dx%20onerror%3Dwindow.hacked%3D1%3E%E2%80%AE")
        page.get_by_text("up to the newest that the hub shows").first.wait_for()
        assert "\u202e" not in page.locator("main").inner_text()
    go(page, "streams", "<img src=x onerror=window.hacked=1>")
    page.get_by_text("Choose a stream").wait_for()
    assert page.locator("main img, main script, main svg[onload]").count() == 0
    assert page.evaluate("window.hacked") is None


@pytest.mark.parametrize("name", ["constructor", "__proto__", "toString"])
def test_an_unknown_screen_is_the_overview(open_console: Any, healthy: Any, name: str) -> None:
    page = open_console(healthy.url, fragment=f"#/{name}")
    page.get_by_role("heading", name="Overview").wait_for()


def test_odd_links_and_hasty_navigation_leave_no_error_and_one_connection(
    open_console: Any, healthy: Any
) -> None:
    page = open_console(healthy.url)
    page.get_by_text("the list is complete").wait_for()
    label = healthy.label("orders")
    odd = ["#//", "#/message", "#/message/zz/1", "#/streams/zz", "#/records/%00", "#/audit/%", "#/trust/1/2"]
    odd += [f"#/message/{label}/{seq}" for seq in ("0", "99999", "1e3", "-1")]
    odd += [f"#/streams/{label}/{seq}" for seq in ("x", "-5", "99999999")]
    odd += [
        f"#/message/{'00' * 32}/1",
        f"#/streams/{'ff' * 32}",
        f"#/records/{'x' * 5_000}",
        "#/records/a/b/a",
    ]
    for link in odd:
        page.evaluate("link => { location.hash = link }", link)
        page.locator("main :is(h1, h2)").first.wait_for()
    draw = random.Random(3)
    screens = [
        f"#/streams/{label}",
        f"#/message/{label}/2",
        "#/records/orders",
        "#/operations/a",
        "#/overview",
    ]
    for _ in range(60):
        page.evaluate("link => { location.hash = link }", draw.choice([*screens, "#/capabilities"]))
        page.wait_for_timeout(draw.choice([0, 5, 20]))
    go(page, "overview")
    followers = page.locator(".facts dt", has_text="Followers").locator("xpath=following-sibling::dd[1]")
    followers.get_by_text(re.compile("^[01]$")).wait_for()
    assert page.locator(".problem.lie").all_inner_texts() == []


def test_the_browser_itself_refuses_markup_from_text(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url)
    refused = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>x</b>'; return 'taken' } catch (e) { return e.name } }"
    )
    assert refused == "TypeError"
    page.traffic.said.clear()  # the browser reports what it refused


def test_keys_open_screens_and_rows(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, fragment=f"#/streams/{healthy.label('orders')}")
    page.get_by_text("40 of 40 rows").wait_for()
    page.locator(".virtual-list").focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Message 39").wait_for()
    page.keyboard.press("k")
    page.get_by_role("heading", name="Message 38").wait_for()
    page.keyboard.press("1")
    page.get_by_role("heading", name="Overview").wait_for()
    page.keyboard.press("2")
    page.get_by_role("heading", name="Streams").wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.dataset.search") == ""
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Keys: on").press("Enter")
    page.keyboard.press("1")
    page.get_by_role("button", name="Keys: off", pressed=False).wait_for()
    assert page.locator("h1", has_text="Overview").count() == 0


TAB_STOPS = 40


def test_a_query_needs_no_mouse(open_console: Any, healthy: Any) -> None:
    page = open_console(healthy.url, fragment="#/records/orders")
    page.get_by_text("40 entries read and verified").wait_for()

    def reach(name: str, selector: str) -> None:
        """Press Tab until the element has the focus, which is visible."""
        for _ in range(TAB_STOPS):
            page.keyboard.press("Tab")
            if page.evaluate(f"document.activeElement.matches({selector!r})"):
                break
        else:
            raise AssertionError(f"{name} is not reached in {TAB_STOPS} steps")
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(style) != "none", f"the focus on {name} is not visible"

    reach("Group by", "input[placeholder='event_type']")
    page.keyboard.type("event_type")
    reach("Run", "button[type=submit].primary")
    page.keyboard.press("Enter")
    page.locator(".answer .badge.holds", has_text="verified").first.wait_for()
    reach("the table of the coverage", "[role=region][aria-label=Coverage]")


CONTRAST = """() => {
    const luminance = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const colour = text => text.match(/[0-9.]+/g).map(Number);
    const ground = element => {
        for (let at = element; at; at = at.parentElement) {
            const found = colour(getComputedStyle(at).backgroundColor);
            if (found.length < 4 || found[3] > 0) return found;
        }
        return colour(getComputedStyle(document.documentElement).backgroundColor);
    };
    const poor = [];
    for (const element of document.querySelectorAll("body *")) {
        const text = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!text || !element.checkVisibility() || ["SCRIPT", "NOSCRIPT"].includes(element.tagName)) continue;
        const [a, b] = [luminance(colour(getComputedStyle(element).color)), luminance(ground(element))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push(`${element.tagName}.${element.className} ${ratio.toFixed(2)}`);
    }
    const nameless = [...document.querySelectorAll("button, a, input, select, [role=listbox]")].filter(
        element => element.checkVisibility()
            && !element.textContent.trim() && !element.ariaLabel && !element.labels?.length);
    const small = [...document.querySelectorAll("#nav a, main .button, main button:not(.hash), main select")]
        .filter(element => element.checkVisibility() && element.getBoundingClientRect().height < 43.5);
    const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    return { poor, nameless: nameless.map(e => e.outerHTML), small: small.map(e => e.outerHTML), wide };
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_every_screen_is_readable(open_console: Any, healthy: Any, scheme: str, width: int) -> None:
    """Contrast of 4.5 (WCAG AA), a name for every control, no sideways scrolling, targets of 44 pixels."""
    page = open_console(healthy.url, color_scheme=scheme, viewport={"width": width, "height": 800})
    places = [[screen] for screen in SCREENS]
    places += [["streams", healthy.label("orders")], ["message", healthy.label("orders"), "13"]]
    page.locator(".stages").wait_for()
    for place in places:
        go(page, *place)
        page.locator(f".screen.{place[0]}").wait_for()
        page.locator(".checks, .message-row" if len(place) > 1 else "main h1").first.wait_for()
        found = page.evaluate(CONTRAST)
        assert found == {"poor": [], "nameless": [], "small": [], "wide": 0}, (place, found)


@contextmanager
def veen_console(
    world: Any, folder: Path, policy: str, trust: str, *, hub: str | None = None
) -> Iterator[str]:
    """Run ``veen console`` against the hub, or its address ``hub``; yield the address that it prints."""
    file = folder / "policy.txt"
    file.write_text(policy)
    command = ["console", "--hub", hub or world.hub.url, "--trust", trust]
    command += ["--witnesses", str(file), "--probes", world.hub.probes_url]
    process = subprocess.Popen(
        [Path(sys.executable).with_name("veen"), *command], stdout=subprocess.PIPE, text=True, cwd=folder
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split(": ", 1)[1].strip()
    finally:
        process.terminate()
        process.wait(20)
        assert process.stdout is not None
        process.stdout.close()


def test_veen_console_forwards_to_a_hub_and_verifies_its_witness(
    open_console: Any, healthy: Any, tmp_path: Path
) -> None:
    with veen_console(healthy, tmp_path, healthy.policy, healthy.hub_id.hex()) as url:
        page = open_console(url, confirm=False)
        page.get_by_text("as the hub_id that was pinned where this console was started").wait_for()
        page.get_by_role("button", name="Compare and open").click()
        page.get_by_text("1 of 1 witnesses").first.wait_for()
        go(page, "streams", healthy.label("orders"))
        page.get_by_text("40 of 40 rows").wait_for()
        page.get_by_text("confirmed by the hub checkpoint up to 40").wait_for()
        healthy.send("orders-2", ["x"])
        go(page, "audit")
        page.context.clear_cookies()
        assert page.evaluate("fetch('/v1/status').then(answer => answer.status)") == 401
        page.traffic.said.clear()


def test_without_a_quorum_nothing_is_called_confirmed(
    open_console: Any, healthy: Any, tmp_path: Path
) -> None:
    absent = NoteKey("absent", COSIGNATURE, SigningKey(SigningSeed(b"\x09" * 32)).public).text
    policy = f"witness w1 {healthy.witness.key}\nwitness w2 {absent}\ngroup both all w1 w2\nquorum both\n"
    with veen_console(healthy, tmp_path, policy, healthy.hub_id.hex()) as url:
        page = open_console(url, confirm=False)
        page.get_by_role("button", name="Compare and open").click()
        go(page, "streams", healthy.label("orders"))
        page.locator(".message-row .badge.open", has_text="not confirmed").first.wait_for()
        page.get_by_text("40 of 40 rows").wait_for()
        page.get_by_text("no quorum").or_(
            page.get_by_text("confirmed by the hub checkpoint up to none")
        ).wait_for()
        assert page.locator(".message-row .badge.holds").count() == 0
        go(page, "message", healthy.label("orders"), 13)
        page.locator(".verdict-line .badge.open", has_text="verified, not confirmed").wait_for()
        page.locator(".checks li", has_text="which is no quorum").wait_for()


def test_another_hub_than_the_pinned_one_cannot_be_waved_through(
    open_console: Any, healthy: Any, tmp_path: Path
) -> None:
    with veen_console(healthy, tmp_path, healthy.policy, "00" * 32) as url:
        page = open_console(url, confirm=False)
        page.locator(".problem.lie", has_text="This is another hub").wait_for()
        assert page.get_by_role("button", name="I have compared it myself").is_disabled()
        page.get_by_role("button", name="Compare and open").click()
        page.get_by_text("This is another hub: the hub_id above").wait_for()
