"""Testing a running hub through its URL: it is left as it was, and checks that cannot run are skipped."""

from __future__ import annotations

import datetime
import ipaddress
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from veen_core.api import envelope_of
from veen_core.errors import AdmissionError
from veen_core.keys import SigningKey
from veen_core.rejection import PADDING
from veen_hub.client import Tls
from veen_selftest.command.selftest import selftest
from veen_selftest.hubs.fleet import OwnFleet, RemoteFleet
from veen_selftest.runner.check import Check, ClauseViolation, Skip
from veen_selftest.runner.context import RunOptions
from veen_selftest.runner.hub_setup import HUB_LOG, PLAIN, ROTATING, HubSetup
from veen_selftest.runner.suite import CheckOutcome, RunReport, chosen, run

from .conftest import ALL, run_check


@pytest.fixture
def url(healthy: OwnFleet) -> str:
    return healthy.hub(PLAIN).url


@pytest.fixture
def admin(healthy: OwnFleet) -> SigningKey:
    key = healthy.hub(PLAIN).admin
    assert key is not None
    return key


def test_with_the_admin_key_only_checks_that_need_their_own_hub_are_skipped(
    healthy: OwnFleet, url: str, admin: SigningKey
) -> None:
    fleet = RemoteFleet(url, "with-key", admin, probes_url=healthy.hub(PLAIN).probes_url)
    quick = [
        (suite, check) for suite, check in chosen(["core"]) if not check.name.startswith(("proof", "epoch"))
    ]
    report = run(quick, fleet, 1, RunOptions(max_wait=0), lambda _event: None)
    assert [(r.check.name, r.why) for r in report.results if r.outcome is CheckOutcome.FAILED] == []
    skipped = {r.check.name: r.why for r in report.results if r.outcome is CheckOutcome.SKIPPED}
    assert skipped.keys() == {
        "scenario.C",
        "invariant.I12",
        "admission.PREFILTER_REJECT",
        "admission.NOT_PRIMARY",
        "admission.REVOKED",
        "admission.CLIENT_BOUNDS",
        "admission.CAP_TTL",
        "admission.EPOCH",
        "admission.PADDING",
        "admission.CAP_ISSUER.withdrawn",
        "admission.order.CAP_TTL",
        "admission.order.EPOCH",
        "admission.order.strict",
        "identity.restart",
        "identity.rotation",
    }
    assert "run it without --hub" in skipped["identity.restart"]
    assert "rotating" in skipped["scenario.C"]


def test_the_hub_log_of_a_running_hub_is_tested_without_starting_anything(
    healthy: OwnFleet, admin: SigningKey
) -> None:
    fleet = RemoteFleet(healthy.hub(HUB_LOG).url, "trust", admin)
    read = {"hub-log.note", "hub-log.tiles", "hub-log.proof", "hub-log.one-view"}
    own = {name for name in ALL if name.startswith(("witness.", "memory."))}
    own |= {"hub-log.restart", "hub-log.kills"}
    report = run(list(chosen(["trust"], [*read, *own])), fleet, 1, RunOptions(), lambda _event: None)
    assert [(r.check.name, r.why) for r in report.results if r.outcome is CheckOutcome.FAILED] == []
    assert {r.check.name for r in report.results if r.outcome is CheckOutcome.PASSED} == read
    assert all("run it without --hub" in r.why for r in report.results if r.check.name in own)


def test_probes_at_an_unknown_address_are_skipped(url: str, admin: SigningKey) -> None:
    result = run_check("api.probes", RemoteFleet(url, "probes", admin))
    assert (result.outcome, result.why) == (
        CheckOutcome.SKIPPED,
        "needs the address of /readyz and /metrics: give --probes",
    )


def test_without_a_key_checks_that_need_a_token_are_skipped(url: str) -> None:
    fleet = RemoteFleet(url, "without-key")
    for name in ("scenario.A", "admission.SIG_INVALID", "cap.receipt", "fuzz.submit"):
        result = run_check(name, fleet)
        assert result.outcome is CheckOutcome.SKIPPED
        assert "--admin-key" in result.why
    for name in ("identity.chain", "api.version", "admission.ATT_ROOT"):
        assert run_check(name, fleet).outcome is CheckOutcome.PASSED


def test_an_open_hub_needs_no_key() -> None:
    fleet = OwnFleet(b"open")
    try:
        hub = fleet.own_hub(HubSetup(name="open", settings={"gating": False})).start()
        there = RemoteFleet(hub.url, "open")
        for name in ("scenario.A", "scenario.B", "admission.order", "proof.page", "mmr.roots"):
            result = run_check(name, there)
            assert result.outcome is CheckOutcome.PASSED, result.why
        with_key = RemoteFleet(hub.url, "open", hub.admin)
        for name in ("admission.CAP_MISSING", "cap.control-label"):
            result = run_check(name, with_key)
            assert (result.outcome, "the hub is open" in result.why) == (CheckOutcome.SKIPPED, True)
    finally:
        fleet.close()


def test_a_hub_with_epochs_passes_the_same_checks(healthy: OwnFleet) -> None:
    hub = healthy.hub(ROTATING)
    there = RemoteFleet(hub.url, "epochs", hub.admin)
    for name in ("scenario.A", "scenario.C", "checkpoint.chain", "cap.receipt", "resync.client", "mmr.roots"):
        result = run_check(name, there)
        assert result.outcome is CheckOutcome.PASSED, result.why


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    now = datetime.datetime.now(datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    made = builder.add_extension(here, critical=False).sign(key, hashes.SHA256())
    cert, secret = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    return cert, secret


def test_a_hub_behind_tls_is_tested_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    fleet = OwnFleet(b"tls")
    try:
        settings = {"gating": False, "tls": {"cert": str(cert), "key": str(key)}}
        hub = fleet.own_hub(HubSetup(name="tls", settings=settings)).start()
        there = RemoteFleet(hub.url, "tls", tls=Tls(ca=cert))
        for name in ("scenario.A", "api.follow", "resync.client", "fuzz.read"):
            result = run_check(name, there, RunOptions(fuzz_requests=20))
            assert result.outcome is CheckOutcome.PASSED, result.why
        assert run_check("fuzz.garbage", there).outcome is CheckOutcome.SKIPPED
        stranger = run_check("scenario.A", RemoteFleet(hub.url, "tls"))
        assert (stranger.outcome, "CERTIFICATE_VERIFY_FAILED" in stranger.why) == (CheckOutcome.FAILED, True)
    finally:
        fleet.close()


def test_a_hub_that_demands_a_client_certificate_is_tested_with_one(tmp_path: Path) -> None:
    cert, key = self_signed(tmp_path)
    fleet = OwnFleet(b"mtls")
    try:
        tls = {"cert": str(cert), "key": str(key), "client_ca": str(cert)}
        hub = fleet.own_hub(HubSetup(name="mtls", settings={"gating": False, "tls": tls})).start()
        flags = [f"--hub={hub.url}", f"--ca={cert}", "--only=scenario.A", "--only=resync.client"]
        shown = [f"--cert={cert}", f"--cert-key={key}"]
        judged = CliRunner().invoke(selftest, [*flags, *shown, "--only=api.follow", "--json"])
        assert (judged.exit_code, json.loads(judged.stdout)["passed"]) == (0, 3), judged.output
        bare = subprocess.run(
            [sys.executable, "-m", "veen_selftest.command.start", *flags],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (bare.returncode, "--cert if it demands one" in bare.stderr) == (2, True), bare.stderr
        for wrong in (shown[:1], shown[1:], [f"--cert={key}", f"--cert-key={key}"]):
            refused = CliRunner().invoke(selftest, [*flags, *wrong])
            assert (refused.exit_code, "--cert" in refused.stderr) == (2, True), refused.output
            assert "no hub answers" not in refused.stderr, "it is said before the hub is asked"
    finally:
        fleet.close()


BOUNDED = {"client_keys": {"max_msgs_per_client_id_per_label": 2}}


def test_a_refusal_by_announced_bounds_skips_the_check() -> None:
    fleet = OwnFleet(b"bounds")
    try:
        hub = fleet.own_hub(HubSetup(name="bounds", settings=BOUNDED)).start()
        there = RemoteFleet(hub.url, "bounds", hub.admin)
        few = RunOptions(max_wait=0, fuzz_requests=20)
        report = run(list(chosen(["core", "props", "fuzz"])), there, 1, few, lambda _event: None)
        assert [(r.check.name, r.why) for r in report.results if r.outcome is CheckOutcome.FAILED] == []
        skipped = {r.check.name: r.why for r in report.results if r.outcome is CheckOutcome.SKIPPED}
        for name in ("scenario.A", "resync.client", "mmr.roots", "fuzz.submit"):
            assert "raise client_keys" in skipped[name]
        assert "raise client_keys" in run_check("hub.batch", there).why
        silent = RemoteFleet(hub.url, "silent", hub.admin)
        silent.hub(PLAIN).known = replace(hub.status(), enforces=())
        for name in ("scenario.A", "hub.batch", "hub.follow_p99_ms"):
            assert run_check(name, silent).outcome is CheckOutcome.FAILED, name
    finally:
        fleet.close()


def test_a_refusal_by_announced_padding_skips_the_check(healthy: OwnFleet) -> None:
    hub = RemoteFleet(healthy.hub(PLAIN).url, "pads").hub(PLAIN)
    refusal = envelope_of(AdmissionError(PADDING, "not a multiple of 256")).encode()
    hub.skip_if_announced(refusal)
    hub.known = replace(hub.known, enforces=("padding, rate and retention by label class (LCLASS0)",))
    with pytest.raises(Skip, match="label classes"):
        hub.skip_if_announced(refusal)
    hub.skip_if_announced(refusal.replace(b"PADDING", b"CBOR_IN"))


WORKED = (
    *("scenario.A", "invariant.I10", "admission.PREFILTER_REJECT", "admission.order", "api.sequence"),
    *("api.json", "cap.rate", "resync.client", "codec.unique", "mmr.roots"),
)


def test_a_hub_that_asks_for_work_gets_it_up_to_a_bound() -> None:
    fleet = OwnFleet(b"work")
    try:
        hub = fleet.own_hub(HubSetup(name="work", settings={"pow": {"difficulty": 4}})).start()
        there = RemoteFleet(hub.url, "work", hub.admin)
        for name in WORKED:
            result = run_check(name, there)
            assert result.outcome is CheckOutcome.PASSED, (name, result.why)
        for name in ("fuzz.submit", "hub.single"):
            result = run_check(name, there)
            assert (result.outcome, "no proof of work" in result.why) == (CheckOutcome.SKIPPED, True)
        hub = fleet.own_hub(HubSetup(name="toil", settings={"pow": {"difficulty": 30}})).start()
        result = run_check("scenario.A", RemoteFleet(hub.url, "toil", hub.admin))
        assert (result.outcome, "difficulty 30" in result.why) == (CheckOutcome.SKIPPED, True)
    finally:
        fleet.close()


LOW = {
    "limits": {
        "max_msg_bytes": 5_000,
        "max_hdr_bytes": 600,
        "max_body_bytes": 4_000,
        "max_attachment_bytes": 1_000,
        "max_attachments_per_msg": 2,
        "max_checkpoint_interval": 7,
        "max_cap_rate_per_sec": 2,
        "max_cap_rate_burst": 1,
    },
    "max_page_items": 4,
}


def test_a_hub_with_lower_limits_passes() -> None:
    """§14.1 allows it."""
    fleet = OwnFleet(b"low")
    try:
        hub = fleet.own_hub(HubSetup(name="low", settings=LOW)).start()
        todo = [each for each in chosen(["core", "props"]) if not each[1].name.startswith(("epoch", "mmr"))]
        report = run(
            todo, RemoteFleet(hub.url, "low", hub.admin), 1, RunOptions(max_wait=0), lambda _event: None
        )
        assert [(r.check.name, r.why) for r in report.results if r.outcome is CheckOutcome.FAILED] == []
        assert report.count(CheckOutcome.PASSED) > 70
    finally:
        fleet.close()


def test_two_runs_with_one_seed_use_different_streams(url: str, admin: SigningKey) -> None:
    for run_id in ("one", "two"):
        fleet = RemoteFleet(url, run_id, admin)
        report = run(list(chosen(["core"], ["scenario.A"])), fleet, 5, RunOptions(), lambda _event: None)
        assert report.ok, report.results


# --- how a run ends


def _ends(*outcomes: Exception | None) -> RunReport:
    def ending(how: Exception | None) -> Check:
        def check(_bench: object) -> None:
            if how is not None:
                raise how

        return Check("some.check", "§0", check, "says something")

    fleet = RemoteFleet("http://127.0.0.1:1", "none")
    return run([("core", ending(how)) for how in outcomes], fleet, 1, RunOptions(), lambda _event: None)


ENDINGS: list[tuple[list[Exception | None], bool]] = [
    ([None], True),
    ([None, Skip("not here")], True),
    ([None, Skip("not here"), Skip("nor this")], False),
    ([Skip("not here")], False),
    ([], False),
    ([None, ClauseViolation("broken")], False),
    ([None, ConnectionRefusedError("gone")], False),
    ([None, ZeroDivisionError("a bug in the check")], False),
]


@pytest.mark.parametrize(("outcomes", "ok"), ENDINGS)
def test_a_run_is_ok_only_if_a_check_passed_and_none_failed(
    outcomes: list[Exception | None], ok: bool
) -> None:
    assert _ends(*outcomes).ok is ok


def test_skipped_never_counts_as_passed() -> None:
    report = _ends(None, Skip("not here"), Skip("nor this"))
    assert (report.count(CheckOutcome.PASSED), report.count(CheckOutcome.SKIPPED)) == (1, 2)


def test_ctrl_c_ends_the_run_and_the_report_says_so() -> None:
    class Stopped:
        def __iter__(self) -> Iterator[None]:
            raise KeyboardInterrupt

    def check(_bench: object) -> None:
        list(Stopped())

    todo = [("core", Check("first", "§0", lambda _bench: None)), ("core", Check("second", "§0", check))] * 2
    report = run(todo, RemoteFleet("http://127.0.0.1:1", "none"), 1, RunOptions(), lambda _event: None)
    assert (len(report.results), report.interrupted, report.ok) == (1, True, False)
