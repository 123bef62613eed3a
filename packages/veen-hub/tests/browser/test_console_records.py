"""The console's screens over records: queries that others verify, operations, bridges, revocations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from veen_core.attached import ATTACHED, Attached
from veen_core.ids import (
    BundleId,
    ClientId,
    HubId,
    Label,
    MmrRoot,
    NodeHash,
    SchemaId,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.msg import operation_id
from veen_hub.client import Identity, Outgoing
from veen_overlays.bridge.records import CheckpointHash, Exported, ImportFailed, PartsHash
from veen_overlays.control.records import Revocation, RevokedId, revocation_stream
from veen_overlays.crdt import LwwWrite
from veen_overlays.discovery.records import OverlayId, ServiceAdvertise, ServiceId
from veen_overlays.identifiers import (
    PrincipalPk,
    RealmId,
    TransferId,
    WalletId,
    ctx_id,
    realm_id,
    wallet_id,
    wallet_stream,
)
from veen_overlays.operations.operation import AccountId
from veen_overlays.operations.payment import PaidOperation
from veen_overlays.query.result.result_file import ResultFile
from veen_overlays.recorder.records import RecordEvent, UnixMilliseconds, sign_continuity
from veen_overlays.rpc.records import ErrorBody, Reply, Request
from veen_overlays.schema.record import Record
from veen_overlays.wallet.records import Deposit, Open, Transfer

from .conftest import PROGRAM

if TYPE_CHECKING:
    from playwright.sync_api import Page

VEEN = Path(sys.executable).with_name("veen")
STREAM = "record/app/orders"
HOSTILE = "<img src=x onerror='window.hacked = 1'>\u202e"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an identity whose key opens the records."""
    folder = tmp_path_factory.mktemp("reader") / "reader"
    subprocess.run([VEEN, "keygen", "--out", folder, "--no-passphrase", "--quiet"], check=True)
    return folder


def event(identity: Identity, number: int, payload: Any) -> RecordEvent:
    return RecordEvent(
        subject_id=f"user:{number % 3}",
        principal_id=identity.client_id,
        event_type="order.paid" if number % 2 else "order.placed",
        event_time=UnixMilliseconds(1_700_000_000_000 + number),
        origin="shop",
        payload=payload,
    )


@pytest.fixture(scope="module")
def recorded(world: Any, reader: Path) -> Any:
    """The hub with recorder events: the first before the link to the identity key."""
    identity = Identity.load(reader)
    payloads: list[Any] = [
        {"order": n, "price": {"cents": 100 * n}, "tags": ["a", b"\x01"]} for n in range(20)
    ]
    payloads[5] = HOSTILE
    world.send_records(STREAM, [event(identity, 0, payloads[0])], identity)
    with world.connected(identity) as hub:
        stream = hub.stream(STREAM)
        stream.send(sign_continuity(identity.signing_key, stream.client_id()))
        for number in range(1, 20):
            stream.send(event(identity, number, payloads[number]))
    world.send(STREAM, ["sealed to somebody else"])
    return world


def open_records(open_console: Any, world: Any, reader: Path, *fragment: str) -> Page:
    page: Page = open_console(
        world.url, fragment="#/" + "/".join(part.replace("/", "%2F") for part in fragment)
    )
    page.locator(".keys summary").click()
    page.locator(".keys input[type=file]").set_input_files(reader / "secrets.cbor")
    return page


def download_of(page: Page) -> Path:
    page.get_by_role("button", name="Run").click()
    page.locator(".answer .badge.holds", has_text="verified").first.wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download the result file").click()
    return Path(download.value.path())


def test_a_query_in_the_page_gives_the_result_that_the_log_gives_again(
    open_console: Any, recorded: Any, reader: Path, tmp_path: Path
) -> None:
    page = open_records(open_console, recorded, reader, "records", STREAM)
    page.get_by_text("22 entries read and verified, 21 opened").wait_for()
    page.get_by_label("Subject").fill("user:2")
    page.get_by_label("Event types").fill("order.paid, order.placed")
    file = tmp_path / "result.veenq"
    file.write_bytes(download_of(page).read_bytes())
    assert page.get_by_label(f"Rows of {STREAM}").locator("tbody tr").count() == 6
    assert HOSTILE.removesuffix("\u202e") in page.locator(".answer").inner_text()
    assert "\u202e" not in page.locator("main").inner_text()
    rows = ResultFile.decode(file.read_bytes()).rows()
    assert [row["attributed"] for row in rows] == [True] * 6
    check_again(recorded, reader, file)


def check_again(world: Any, reader: Path, file: Path) -> None:
    """Let ``veen query verify`` execute a result's query again from the log."""
    trust = ["--hub", world.hub.url, "--trust", world.hub_id.hex(), "--client", str(reader)]
    verify = [VEEN, "query", "verify", file, "--execute", *trust]
    done = subprocess.run(verify, capture_output=True, text=True, check=False, cwd=file.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same rows when the query is executed again" in done.stdout


def test_a_grouped_query_over_two_streams_gives_the_groups_that_the_logs_give_again(
    open_console: Any, recorded: Any, reader: Path, tmp_path: Path
) -> None:
    page = open_records(open_console, recorded, reader, "records", STREAM, "record/never/written")
    page.get_by_text("22 entries read and verified, 21 opened").wait_for()
    page.get_by_label("Values, one per line").fill("origin=shop\nattributed=true")
    page.get_by_label("Group by").fill("event_type, subject_id")
    page.get_by_label("Metrics").fill(
        "count, max(event_time), avg(payload.price.cents), count_distinct(origin)"
    )
    file = tmp_path / "groups.veenq"
    file.write_bytes(download_of(page).read_bytes())
    coverage = page.get_by_label("Coverage").locator("tbody tr")
    assert coverage.nth(0).inner_text().count("1 to 22: 21 opened, 1 not opened, 19 match") == 1
    assert "none: the stream has no entries" in coverage.nth(1).inner_text()
    heads = page.locator(".answer thead").last.inner_text().split()
    assert heads[:3] == ["event_type", "subject_id", "count"]
    rows = ResultFile.decode(file.read_bytes()).rows()
    assert len(rows) == 6
    assert sum(row["count"] for row in rows) == 19
    assert rows[0]["max(event_time)"] == "2023-11-14T22:13:20.015Z"
    assert rows[0]["avg(payload.price.cents)"] == 900
    check_again(recorded, reader, file)


@pytest.mark.parametrize(("evidence", "receipts"), [("of a sample", range(1, 20)), ("of no event", range(1))])
def test_a_result_with_fewer_receipts_says_what_it_does_not_prove(
    open_console: Any, recorded: Any, reader: Path, evidence: str, receipts: range
) -> None:
    page = open_records(open_console, recorded, reader, "records", STREAM)
    page.get_by_text("22 entries read and verified").wait_for()
    page.get_by_label("Receipts").select_option(evidence)
    file = download_of(page).rename(reader.with_name(f"{receipts.stop}.veenq"))
    result = ResultFile.decode(file.read_bytes())
    assert len(result.evidence.sources[0].receipts) in receipts
    assert len(result.rows()) == 20
    check_again(recorded, reader, file)


def test_a_query_reads_every_epoch_of_a_stream(open_console: Any, reader: Path, tmp_path: Path) -> None:
    from veen_selftest.runner.hub_setup import FAST_EPOCHS  # noqa: PLC0415 - as below

    from .console_world import ConsoleWorld  # noqa: PLC0415 - veen-selftest is installed only here

    world = ConsoleWorld(tmp_path, PROGRAM, profile=FAST_EPOCHS.profile, settings=dict(FAST_EPOCHS.settings))
    try:
        identity = Identity.load(reader)
        epochs = set()
        while len(epochs) < 2:
            epoch = world.hub.status().epoch
            if epoch not in epochs:
                world.send_records(STREAM, [event(identity, number, number) for number in range(3)], identity)
                epochs.add(epoch)
        page = open_records(open_console, world, reader, "records", STREAM)
        page.get_by_text("6 entries read and verified, 6 opened").wait_for()
        page.get_by_label("Metrics").fill("count, sum(payload)")
        file = tmp_path / "epochs.veenq"
        file.write_bytes(download_of(page).read_bytes())
        result = ResultFile.decode(file.read_bytes())
        assert result.rows()[0]["count"] == 6
        assert len(result.digest.coverage) == page.get_by_label("Coverage").locator("tbody tr").count() >= 2
        check_again(world, reader, file)
    finally:
        world.close()


def test_a_result_reaches_the_hub_checkpoint_and_its_witness(
    open_console: Any, recorded: Any, reader: Path, tmp_path: Path
) -> None:
    page = open_records(open_console, recorded, reader, "records", STREAM)
    page.get_by_text("22 entries read and verified").wait_for()
    page.get_by_label("Fields").fill("subject_id, payload.price.cents, payload.tags.1, attributed")
    file, policy = tmp_path / "result.veenq", tmp_path / "policy.txt"
    file.write_bytes(download_of(page).read_bytes())
    policy.write_text(recorded.policy)
    rows = ResultFile.decode(file.read_bytes()).rows()
    first = {"subject_id": "user:0", "payload.price.cents": 0, "payload.tags.1": "01", "attributed": False}
    assert rows[0] == first
    verify = [VEEN, "verify", file, "--trust", recorded.hub_id.hex(), "--witnesses", policy]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_wrong_query_is_refused_with_the_reason(open_console: Any, recorded: Any, reader: Path) -> None:
    page = open_records(open_console, recorded, reader, "records", STREAM)
    page.get_by_text("22 entries read and verified").wait_for()
    page.get_by_label("Fields").fill("price")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").filter(has_text="is not a field").wait_for()
    page.get_by_label("Fields").fill("*")
    page.get_by_label("Committed from (UTC)").fill("yesterday")
    page.get_by_role("button", name="Run").click()
    page.get_by_role("alert").filter(has_text="is not a timestamp").wait_for()


def test_without_a_key_nothing_matches_and_the_coverage_says_so(open_console: Any, recorded: Any) -> None:
    page = open_console(recorded.url, fragment="#/records/record%2Fapp%2Forders")
    page.get_by_text("22 entries read and verified, 0 opened").wait_for()
    page.get_by_role("button", name="Run").click()
    page.get_by_text("1 to 22: 0 opened, 22 not opened, 0 match").wait_for()
    page.get_by_text("No event matches.").wait_for()


def test_operations_are_below_what_led_to_them_and_calls_have_their_replies(
    open_console: Any, world: Any, reader: Path
) -> None:
    identity = Identity.load(reader)

    def pay(parent: bytes | None) -> PaidOperation:
        return PaidOperation(
            operation_type="print",
            operation_args={"page": HOSTILE},
            payer_account=AccountId(bytes(32)),
            payee_account=AccountId(b"\x01" * 32),
            amount=3,
            parent_operation_id=None if parent is None else operation_id(parent),
        )

    (first,) = world.send_records("work", [pay(None)], identity)
    world.send_records("work", [pay(first.leaf_hash), pay(b"\x07" * 32)], identity)
    (asked, _open) = world.send_records(
        "work", [Request(method="add", args=[1]), Request(method=HOSTILE, args=[])], identity
    )
    failed = Reply(ok=False, error=ErrorBody(code="too_late"))
    world.send_records("work", [Outgoing(body=failed, parent=asked.leaf_hash)], identity)
    service = ServiceAdvertise(
        service_id=ServiceId(b"\x05" * 32),
        name="adder",
        overlay_id=OverlayId(b"\x06" * 32),
        methods=("add",),
        stream_ids=(),
        regions=(),
        required_caps=(),
        tags=(),
        ttl_sec=3_600,
    )
    world.send_records("work", [service], identity)
    page = open_records(open_console, world, reader, "operations", "work")
    page.get_by_text("Operations: 3").wait_for()
    rows = page.get_by_label("Operations", exact=True).locator("tbody tr")
    assert rows.nth(1).locator(".tree").inner_text().strip().startswith("↳")
    assert "not in this stream" in rows.nth(2).inner_text()
    page.get_by_text("Calls: 2").wait_for()
    page.get_by_text("failed: too_late").wait_for()
    page.get_by_text("no reply in this stream").wait_for()
    page.get_by_text("adder").wait_for()
    page.get_by_role("button", name="1", exact=True).click()
    page.get_by_role("heading", name="paid.operation.v1").wait_for()
    assert page.locator("main img").count() == 0
    page.get_by_role("link", name="Show the proof").click()
    page.get_by_text("verified and confirmed").wait_for()


def test_wallets_and_registers_are_folded_and_their_stream_is_found_by_the_owners_key(
    open_console: Any, world: Any, reader: Path
) -> None:
    realm, owner = realm_id("shop"), PrincipalPk(b"\x11" * 32)
    ctx = ctx_id(owner, realm)
    wallet, other = wallet_id(realm, ctx, "EUR"), WalletId(b"\x0d" * 32)
    moved = Transfer(
        wallet_id=wallet,
        to_wallet_id=other,
        amount=120,
        ts=UnixTime(7),
        transfer_id=TransferId(b"\x07" * 32),
    )
    records: list[Record | Outgoing] = [
        Open(wallet_id=wallet, realm_id=realm, ctx_id=ctx, currency="EUR", created_at=UnixTime(5)),
        Deposit(wallet_id=wallet, amount=300, ts=UnixTime(6)),
        moved,
        moved,
        LwwWrite(key=b"colour", ts=UnixTime(9), value=HOSTILE.encode()),
        LwwWrite(key=b"colour", ts=UnixTime(8), value=b"blue"),
    ]
    world.send_records(wallet_stream(wallet).hex(), records, Identity.load(reader))
    page = open_console(world.url, fragment="#/identities")
    page.get_by_label("Root key").fill(owner.hex())
    page.get_by_label("Realm").fill("shop")
    page.get_by_label("Currency").fill("EUR")
    row = page.locator("tbody tr", has_text="stream of the wallet")
    row.get_by_role("link", name="Records").click()
    page.get_by_text("6 entries read and verified").wait_for()
    page.locator(".keys summary").click()
    page.locator(".keys input[type=file]").set_input_files(reader / "secrets.cbor")
    page.get_by_text("Folded in this page from all entries of the stream.").first.wait_for()
    assert page.get_by_label("Wallets", exact=True).locator("tbody tr").inner_text().split()[1] == "180"
    assert "onerror" in page.get_by_label("Registers", exact=True).inner_text()
    assert page.locator("main img").count() == 0


def exported(bundle: int, previous: int, first: int, last: int, label: Label) -> Exported:
    before = first - 1
    return Exported(
        bundle_id=BundleId(bytes([bundle]) * 32),
        prev_bundle_id=BundleId(bytes([previous]) * 32),
        parts_hash=PartsHash(bytes(32)),
        source_hub_id=HubId(b"\x09" * 32),
        stream_id=StreamId(b"\x08" * 32),
        stream="orders",
        label=label,
        from_seq=StreamSeq(first),
        to_seq=StreamSeq(last),
        events=last - first + 1,
        root_before=MmrRoot(bytes(32)),
        peaks_before=(NodeHash(bytes(32)),) * before.bit_count(),
        root_after=MmrRoot(bytes(32)),
        checkpoint=CheckpointHash(bytes(32)),
        ts=UnixTime(1),
        bridge_id=ClientId(b"\x04" * 32),
        operator="ann",
    )


def test_bridges_show_bundles_gaps_and_what_is_not_exported(
    open_console: Any, world: Any, reader: Path
) -> None:
    identity = Identity.load(reader)
    label = Label(bytes.fromhex(world.label("orders")))
    chain = [exported(1, 0, 1, 10, label), exported(2, 1, 11, 20, label), exported(4, 3, 26, 30, label)]
    world.send_records("bridge/online/log", chain, identity)
    page = open_records(open_console, world, reader, "bridges")
    page.get_by_text("gap: does not continue the bundle before it").wait_for()
    page.get_by_text("3 records,").wait_for()
    page.get_by_text("10 not exported").wait_for()
    refused = ImportFailed(
        position=StreamSeq(0),
        code="unknown_hub",
        reason=HOSTILE,
        import_time=UnixTime(1),
        bridge_id=ClientId(b"\x04" * 32),
        operator="ann",
    )
    world.send_records("bridge/offline/log", [refused], identity)
    page.get_by_role("link", name="Imports to this hub").click()
    page.get_by_text("refused: unknown_hub").wait_for()
    assert page.locator("main img").count() == 0


def test_revocations_of_a_realm_are_opened_with_a_key(open_console: Any, world: Any, reader: Path) -> None:
    realm = RealmId(b"\x0c" * 32)
    made = [
        Revocation(kind="auth-ref", target=RevokedId(b"\x0a" * 32), reason="lost laptop", ts=UnixTime(1)),
        Revocation(kind="client-id", target=RevokedId(b"\x0b" * 32), ts=UnixTime(1), ttl=5),
    ]
    world.send_records(revocation_stream(realm).hex(), made, Identity.load(reader))
    page = open_records(open_console, world, reader, "revocations", realm.hex())
    page.get_by_text("2 revocations").wait_for()
    assert page.locator("tbody tr").nth(1).inner_text().count("lost laptop") == 1
    assert page.locator("tbody .badge.holds").count() == 1


def test_a_message_with_attachments_lists_them_and_a_false_list_is_refused(
    open_console: Any, world: Any, reader: Path
) -> None:
    content = b"a contract"
    with world.connected(Identity.load(reader)) as hub:
        stream = hub.stream("files")
        stream.send("see the file", attachments=[content])
        ref = next(iter(stream.read(from_seq=1))).attachments[0]
        listed = Attached(schema=SchemaId(bytes(32)), body=b"text", attachments=(ref,)).encode()
        stream.send(listed, schema=ATTACHED)
    page = open_records(open_console, world, reader, "message", world.label("files"), "1")
    page.locator("pre.body", has_text="see the file").wait_for()
    page.get_by_text(ref.coid.hex()[:16]).wait_for()
    page.evaluate("() => { location.hash = location.hash.replace(/1$/, '2') }")
    page.get_by_text("payload_hdr.att_root is not the root of the attachments").wait_for()
