"""veen hub: tests that change a hub create their own; the others share one."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import signal
import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.hub.process import launch
from veen_core.ids import HubId
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import COSIGNATURE, NoteKey
from veen_storage import Files, Layout, Registry, lock_owner
from veen_storage.copies.export import VerifiedExport, verify_export

from .conftest import STREAM, Town
from .running import Done, end_hubs, ending_hubs, environment, process, veen


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create an admin and a stopped, open hub with three messages."""
    root = tmp_path_factory.mktemp("place")
    veen("keygen", "--out", root / "admin", "--no-passphrase").ok()
    hub_id = veen("hub", "init", "--data-dir", root / "hub", "--admin", root / "admin", "--json").json[
        "hub_id"
    ]
    try:
        url = start(root / "hub", "--open").json["url"]
        flags = ("--hub", url, "--trust", hub_id, "--client", root / "admin")
        veen("send", "--batch", "-s", "log", *flags, stdin=b"").failed(Exit.USAGE)
        for text in ("one", "two", "three"):
            veen("send", text, "-s", "log", *flags).ok()
        veen("hub", "checkpoint", *flags).ok()
        assert "no label has grown" in veen("hub", "checkpoint", *flags).ok().out
        veen("hub", "stop", "--data-dir", root / "hub").ok()
    finally:
        end_hubs(root)
    return root


def start(data_dir: Path, *more: str) -> Done:
    return veen("hub", "start", "--data-dir", data_dir, "--port", 0, "--detach", "--json", *more)


def test_status_health_and_metrics_of_a_running_hub(town: Town) -> None:
    status = town.as_("alice", "hub", "status", "--json").json
    assert (status["pinned"], status["identity"]["hub_id"]) == (True, town.hub_id)
    unpinned = veen("hub", "status", "--hub", town.url)
    assert "not pinned" in unpinned.ok().out
    assert veen("hub", "status", "--hub", town.url, "--trust", "ab" * 32).code == Exit.PROTOCOL
    assert veen("hub", "health", *town.probes, "--json").json["ready"] is True
    samples = veen("hub", "metrics", *town.probes, "--json").json["samples"]
    assert [each["value"] >= 0 for each in samples if each["name"] == "veen_submit_ok_total"] == [True]
    stages = {each["labels"]["stage"] for each in samples if each["name"] == "veen_stage_entries"}
    assert {"accepted", "durable"} <= stages
    veen("hub", "health", "--hub", "http://127.0.0.1:9").failed(Exit.NETWORK)
    veen("hub", "health", "--hub", "ftp://x").failed(Exit.USAGE)


@pytest.mark.parametrize("what", ["health", "metrics"])
def test_unreachable_probes_name_the_option_for_their_address(town: Town, what: str) -> None:
    failed = veen("hub", what, "--hub", town.url, "--probes", "http://127.0.0.1:9").failed(Exit.NETWORK)
    assert "http://127.0.0.1:9" in failed
    assert "--probes" in failed


def test_only_the_admin_may_request_checkpoints_and_retention(town: Town) -> None:
    assert "FORBIDDEN" in town.as_("bob", "hub", "checkpoint").failed(Exit.REFUSED)
    assert town.as_("admin", "hub", "retention", "--json").json == {"chunks": 0, "entries": 0}
    refused = town.as_("admin", "hub", "anchor").failed(Exit.REFUSED)
    assert refused.endswith("set anchor.backend in hub.yaml\n")


def test_a_running_hub_locks_its_data_directory(town: Town, tmp_path: Path) -> None:
    data_dir = ("--data-dir", town / "hub")
    assert "stop" in veen("hub", "fsck", *data_dir).failed(Exit.USAGE)
    assert "veen hub stop" in start(town / "hub").failed(Exit.USAGE)
    moved = veen("hub", "clone", *data_dir, "--with-keys", "--out", tmp_path / "c")
    assert "stop the hub" in moved.failed(Exit.USAGE)
    assert veen("hub", "keys", *data_dir, "--json").json["hub_id"] == town.hub_id


def test_a_running_hub_is_cloned_and_exported(town: Town, tmp_path: Path) -> None:
    data_dir = ("--data-dir", town / "hub")
    town.as_("alice", "send", "kept", "-s", STREAM).ok()
    veen("hub", "clone", *data_dir, "--out", tmp_path / "copy").ok()
    veen("hub", "fsck", "--data-dir", tmp_path / "copy").ok()
    veen("hub", "export", *data_dir, "-s", STREAM, "--out", tmp_path / "evidence").ok()
    assert veen("verify", tmp_path / "evidence", "--trust", town.hub_id).ok()


def test_a_detached_hub_writes_a_pid_file_and_hub_stop_ends_it(place: Path) -> None:
    try:
        told = start(place / "hub").json
        assert (place / "hub.pid").read_text() == f"{told['pid']}\n"
        assert lock_owner(place / "hub") == told["pid"]
        (place / "hub" / "lock").unlink()  # a note: the lock itself is on the folder
        assert f"process {told['pid']} has" in start(place / "hub").failed(Exit.USAGE)
        veen("hub", "stop", "--data-dir", place / "hub").ok()
    finally:
        end_hubs(place)
    assert not (place / "hub.pid").exists()
    assert "nothing to stop" in veen("hub", "stop", "--data-dir", place / "hub").failed(Exit.USAGE)


def test_a_detached_hub_imports_nothing_from_the_current_folder(place: Path, tmp_path: Path) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('a stranger in the hub')")
    try:
        done = process(tmp_path, "hub", "start", "-d", place / "hub", "--port", 0, "--detach", "--json")
        assert done.json["pid"] == lock_owner(place / "hub")
        veen("hub", "stop", "--data-dir", place / "hub").ok()
    finally:
        end_hubs(place)


def test_a_partial_line_of_a_starting_hub_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "slow"
    slow.write_text(
        "#!/bin/sh\nprintf 'veen-hub listening on http://x:1'; sleep 0.3; echo 234, probes on http://x:9\n"
        "exec sleep 60\n"
    )
    slow.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(slow))
    running, url, probes_url = launch([], tmp_path / "log")
    running.kill()
    running.wait()
    assert (url, probes_url) == ("http://x:1234", "http://x:9")


def test_an_unwritable_pid_file_is_refused_before_the_hub_starts(place: Path, tmp_path: Path) -> None:
    for file in (tmp_path / "nowhere" / "hub.pid", tmp_path):
        assert "cannot be written" in start(place / "hub", "--pid-file", str(file)).failed(Exit.USAGE)
        assert lock_owner(place / "hub") is None


def test_ctrl_c_drains_a_hub_in_the_foreground(place: Path) -> None:
    running = subprocess.Popen(
        ["veen", "hub", "start", "--data-dir", "hub", "--port", "0", "--json"],
        cwd=place,
        env=environment(place / ".config"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert running.stdout is not None
        assert json.loads(running.stdout.readline())["url"].startswith("http://127.0.0.1:")
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
    assert (running.returncode, err) == (0, "")


def test_a_hub_that_cannot_start_says_why(place: Path, tmp_path: Path, town: Town) -> None:
    assert "veen hub init" in start(tmp_path / "nothing").failed(Exit.USAGE)
    port = town.url.rpartition(":")[2]
    busy = veen("hub", "start", "--data-dir", place / "hub", "--port", port, "--detach")
    assert "choose another" in busy.failed(Exit.USAGE)
    foreground = process(tmp_path, "hub", "start", "--data-dir", place / "hub", "--port", port)
    assert "choose another" in foreground.failed(Exit.USAGE)
    assert "veen-hub" not in foreground.err
    assert lock_owner(place / "hub") is None


@pytest.mark.parametrize(
    ("file", "content", "ends"),
    [
        ("index/data.mdb", b"", (Exit.PROTOCOL, "run `veen hub repair`")),
        ("hub-identity.cbor", b"\xff", (Exit.PROTOCOL, "restore it from a clone")),
        ("VERSION", b"veen-data/99\n", (Exit.PROTOCOL, "restore it from a clone")),
        ("../hub.yaml", b"prot: 1\n", (Exit.USAGE, "prot")),
        ("../hub.yaml", b"tls: {cert: no.pem, key: no.pem}\n", (Exit.USAGE, "tls.cert: no.pem")),
    ],
    ids=["index", "identity", "format", "setting", "certificate"],
)
def test_a_failed_start_prints_the_same_error_in_foreground_and_detached(
    place: Path, tmp_path: Path, file: str, content: bytes, ends: tuple[Exit, str]
) -> None:
    code, said = ends
    data_dir = Path(shutil.copytree(place / "hub", tmp_path / "hub"))
    (tmp_path / "hub.yaml").write_bytes(b"")
    (data_dir / file).write_bytes(content)
    flags = (
        "hub",
        "start",
        "-d",
        data_dir,
        "--port",
        0,
        "--config",
        tmp_path / "hub.yaml",
        "--log-level=error",
    )
    with ending_hubs(tmp_path):
        foreground = process(tmp_path, *flags).failed(code)
        detached = process(tmp_path, *flags, "--detach").failed(code)
    assert said in foreground
    assert detached == f"{foreground.rstrip()} (its log: {data_dir}.log)\n"


def test_a_hub_killed_during_its_start_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nkill -9 $$\n")
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    with pytest.raises(CommandFailed, match="SIGKILL; check whether") as failed:
        launch([], tmp_path / "log")
    assert failed.value.code == Exit.USAGE


def test_a_hub_that_ends_with_an_empty_log_suggests_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr("sys.executable", str(program))
    with pytest.raises(CommandFailed, match="check whether the disk is full") as failed:
        launch([], tmp_path / "log")
    assert failed.value.code == Exit.USAGE


def test_a_hub_whose_pid_file_cannot_be_written_is_stopped(place: Path) -> None:
    try:
        assert "No space left" in start(place / "hub", "--pid-file", "/dev/full").failed(Exit.USAGE)
        assert lock_owner(place / "hub") is None
    finally:
        end_hubs(place)


def test_an_init_on_a_full_disk_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_files: Files, layout: Layout, _registry: Registry) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(layout.version))

    (tmp_path / "mine").mkdir()
    with monkeypatch.context() as patched:
        patched.setattr("veen_storage.opening.creation.write_registry", full)
        for name in ("hub", "mine"):
            told = veen("hub", "init", "--data-dir", tmp_path / name, "--no-admin").failed(Exit.USAGE)
            assert "free disk space and try again" in told
    assert (tmp_path / "mine").is_dir(), "what was there before is not ours to remove"
    veen("hub", "init", "--data-dir", tmp_path / "hub", "--no-admin").ok()


def test_init_requires_an_admin_and_overwrites_nothing(place: Path, tmp_path: Path) -> None:
    assert "--no-admin" in veen("hub", "init", "--data-dir", tmp_path / "h").failed(Exit.USAGE)
    assert "choose another folder" in veen("hub", "init", "--data-dir", place / "hub", "--no-admin").failed(
        Exit.USAGE
    )
    made = veen("hub", "init", "--data-dir", tmp_path / "h", "--no-admin", "--profile", "bulk", "--zstd", 3)
    assert "--open" in made.ok().out
    assert "issuers" in made.out
    assert "VEEN_DATA_DIR" in veen("hub", "fsck").failed(Exit.USAGE)


def test_fsck_clone_repair_and_fork(place: Path, tmp_path: Path) -> None:
    data_dir = ("--data-dir", place / "hub")
    assert veen("hub", "fsck", *data_dir, "--quick", "--json").json["ok"] is True
    copy = tmp_path / "copy"
    assert veen("hub", "clone", *data_dir, "--out", copy, "--json").json["entries"] == 3
    (copy / "index/data.mdb").write_bytes(b"")
    assert veen("hub", "fsck", "--data-dir", copy).code == Exit.PROTOCOL
    assert "rebuilt the index of 3 entries" in veen("hub", "repair", "--data-dir", copy).ok().out
    veen("hub", "fsck", "--data-dir", copy).ok()
    told = veen(
        "hub", "fork", *data_dir, "--out", tmp_path / "fork", "--admin", place / "admin", "--json"
    ).json
    assert told["signed_by_old"] is True
    assert told["new_hub"] != told["old_hub"]
    veen("hub", "fsck", "--data-dir", tmp_path / "fork").ok()


def test_fsck_names_the_damage_and_repair_refuses_a_damaged_log(place: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    veen("hub", "clone", "--data-dir", place / "hub", "--out", copy).ok()
    chunk = next(path for path in Layout(copy).log.iterdir() if path.name.startswith("chunk-"))
    content = bytearray(chunk.read_bytes())
    content[200] ^= 1
    chunk.write_bytes(content)
    done = veen("hub", "fsck", "--data-dir", copy)
    assert chunk.name in done.out
    done.failed(Exit.PROTOCOL)
    veen("hub", "repair", "--data-dir", copy).failed(Exit.PROTOCOL)


def test_an_export_verifies_offline_until_it_is_changed(place: Path, tmp_path: Path) -> None:
    data_dir, target = ("--data-dir", place / "hub"), tmp_path / "export"
    told = veen("hub", "export", *data_dir, "-s", "log", "--from", 2, "--out", target, "--json").json
    assert (told["from_seq"], told["to_seq"]) == (2, 3)
    assert "entries 2 to 3" in veen("verify", target, "--trust", told["hub_id"]).ok().out
    pk = veen("hub", "keys", *data_dir, "--json").json["keys"][0]["hub_pk"]
    veen("verify", target, "--trust", pk).ok()
    veen("verify", target).failed(Exit.PROTOCOL)
    veen("verify", target, "--trust", "ab" * 32).failed(Exit.PROTOCOL)
    payloads = target / "payloads.cborseq"
    content = bytearray(payloads.read_bytes())
    content[-1] ^= 1
    payloads.write_bytes(content)
    veen("verify", target, "--trust", told["hub_id"]).failed(Exit.PROTOCOL)
    by_time = ("--since", "2020-01-01", "--until", "+1h", "--form", "chunks")
    veen("hub", "export", *data_dir, "-s", "log", *by_time, "--out", tmp_path / "chunks").ok()
    chunks = ("verify", tmp_path / "chunks", "--trust", told["hub_id"])
    veen(*chunks).ok()
    witness = NoteKey(name="w.example/w", kind=COSIGNATURE, public=SigningKey(SigningSeed(bytes(32))).public)
    (tmp_path / "policy.txt").write_text(f"witness w {witness.text}\nquorum w\n")
    assert "no quorum" in veen(*chunks, "--witnesses", tmp_path / "policy.txt").failed(Exit.PROTOCOL)
    assert "no entries" in veen("hub", "export", *data_dir, "-s", "x", "--out", tmp_path / "n").failed(
        Exit.USAGE
    )
    veen("hub", "export", *data_dir, "--out", tmp_path / "n").failed(Exit.USAGE)


def test_an_export_with_skipped_checks_needs_allow_partial(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "export"
    made = veen("hub", "export", "--data-dir", place / "hub", "-s", "log", "--out", target, "--json").json
    words = ("verify", target, "--trust", made["hub_id"])
    assert veen(*words, "--json").json["complete"] is True

    def partly(folder: Path, hub_id: HubId, _roots: object) -> VerifiedExport:
        return dataclasses.replace(verify_export(folder, hub_id), followed_all=False)

    monkeypatch.setattr("veen_cli.evidence.verify.verify_export", partly)
    partial = veen(*words)
    assert "--allow-partial" in partial.failed(Exit.PROTOCOL)
    assert partial.out.startswith("? ")
    assert "NOT CHECKED" in partial.out
    assert veen(*words, "--allow-partial").ok().out.startswith("✓ ")
    allowed = veen(*words, "--allow-partial", "--json").json
    assert (allowed["holds"], allowed["complete"]) == (True, False)


def test_clients_that_pinned_a_hub_accept_its_rotated_key(place: Path) -> None:
    data_dir = place / "hub"
    before = veen("hub", "keys", "--data-dir", data_dir, "--json").json
    after = veen("hub", "rotate", "--data-dir", data_dir, "--window", "1h", "--json").json
    assert (len(before["keys"]), len(after["keys"])) == (1, 2)
    assert after["hub_id"] == before["hub_id"]
    try:
        url = start(data_dir, "--open").json["url"]
        flags = ("--hub", url, "--trust", after["hub_id"], "--client", place / "admin")
        veen("send", "after the rotation", "-s", "log", *flags).ok()
        assert "after the rotation" in veen("stream", "-s", "log", *flags).ok().out
        veen("hub", "stop", "--data-dir", data_dir).ok()
    finally:
        end_hubs(place)
    veen("hub", "fsck", "--data-dir", data_dir).ok()


def test_a_hub_restored_from_an_old_copy_is_detected_and_the_evidence_is_saved(tmp_path: Path) -> None:
    for name in ("alice", "mallory"):
        veen("keygen", "--out", tmp_path / name, "--no-passphrase").ok()
    made = veen("hub", "init", "-d", tmp_path / "hub", "--no-admin", "--json").json

    def write(data_dir: Path, who: str, text: str) -> None:
        url = start(data_dir, "--open").json["url"]
        flags = ("-s", "log", "--hub", url, "--trust", made["hub_id"], "--client", tmp_path / who)
        veen("send", text, *flags).ok()
        veen("hub", "stop", "-d", data_dir).ok()

    try:
        write(tmp_path / "hub", "alice", "one")
        shutil.copytree(tmp_path / "hub", tmp_path / "earlier")
        write(tmp_path / "hub", "alice", "two")
        write(tmp_path / "earlier", "mallory", "another two")
        url = start(tmp_path / "earlier", "--open").json["url"]
        flags = ("-s", "log", "--hub", url, "--trust", made["hub_id"], "--client", tmp_path / "alice")
        told = veen("stream", *flags).failed(Exit.PROTOCOL)
        veen("hub", "stop", "-d", tmp_path / "earlier").ok()
    finally:
        end_hubs(tmp_path)
    (folder,) = tmp_path.glob("alice/state/*/evidence/*")
    assert str(folder) in told
    trust = ("--trust", made["hub_id"], "--client", tmp_path / "alice")
    assert "convict the pinned hub" in veen("verify", folder / "equivocation.cbor", *trust).ok().out
    assert "convict" in veen("verify", folder / "held.cbor", folder / "shown.cbor", *trust).failed(
        Exit.PROTOCOL
    )


def test_at_a_hub_with_epochs_a_message_is_found_in_its_epoch(tmp_path: Path) -> None:
    veen("keygen", "--out", tmp_path / "me", "--no-passphrase").ok()
    made = veen("hub", "init", "-d", tmp_path / "hub", "--no-admin", "--profile", "rotating", "--json").json
    try:
        url = start(tmp_path / "hub", "--open").json["url"]
        flags = ("-s", "log", "--hub", url, "--trust", made["hub_id"], "--client", tmp_path / "me")
        epoch = veen("send", "in its minute", *flags, "--json").json["epoch"]
        assert epoch > 0
        assert "in its minute" in veen("stream", "--epoch", epoch, *flags).ok().out
        assert veen("receipt", "get", 1, "--epoch", epoch, *flags, "--json").json["value"]["stream_seq"] == 1
        assert f"in epoch {epoch - 5}" in veen("stream", "--epoch", epoch - 5, *flags).ok().out
        assert "is empty" in veen("kv", "list", *flags).ok().out  # folded through all its epochs
        folded = veen("fold", "kv.map", "log", *flags[2:], "--epoch", epoch, "--json").json
        assert (folded["upto_seq"], folded["foreign"]) == (1, 1)
        veen("hub", "stop", "-d", tmp_path / "hub").ok()
    finally:
        end_hubs(tmp_path)
    export = (
        "hub",
        "export",
        "-d",
        tmp_path / "hub",
        "-s",
        "log",
        "--epoch",
        epoch,
        "--out",
        tmp_path / "out",
    )
    veen(*export).ok()
    veen("verify", tmp_path / "out", "--trust", made["hub_id"]).ok()


def test_a_hub_with_tls_is_reached_only_with_its_ca(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    config = tmp_path / "hub.yaml"
    config.write_text(f"tls:\n  cert: {tmp_path / 'cert.pem'}\n  key: {tmp_path / 'key.pem'}\n")
    made = veen("hub", "init", "-d", tmp_path / "hub", "--no-admin", "--json").json
    try:
        started = start(tmp_path / "hub", "--open", "--config", str(config)).json
        url = started["url"]
        monkeypatch.setenv("VEEN_PROBES", started["probes_url"])
        assert url.startswith("https://")
        plain = veen("hub", "status", "--hub", url.replace("https", "http"))
        assert "write https://" in plain.failed(Exit.NETWORK)
        assert "--ca" in veen("hub", "status", "--hub", url).failed(Exit.NETWORK)
        flags = ("--hub", url, "--trust", made["hub_id"])
        veen("hub", "status", *flags).failed(Exit.NETWORK)
        veen("hub", "health", *flags).failed(Exit.NETWORK)
        assert veen("hub", "status", *flags, "--ca", tmp_path / "cert.pem", "--json").json["pinned"] is True
        veen("hub", "health", *flags, "--ca", tmp_path / "cert.pem").ok()
        veen("hub", "stop", "-d", tmp_path / "hub").ok()
    finally:
        end_hubs(tmp_path)


def test_a_client_certificate_is_presented_if_the_hub_requires_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate(cert, key)
    config = tmp_path / "hub.yaml"
    config.write_text(f"tls: {{cert: {cert}, key: {key}, client_ca: {cert}}}\n")
    veen("hub", "init", "-d", tmp_path / "hub", "--no-admin").ok()
    with ending_hubs(tmp_path):
        started = start(tmp_path / "hub", "--open", "--config", str(config)).json
        url = started["url"]
        monkeypatch.setenv("VEEN_PROBES", started["probes_url"])
        flags = ("--hub", url, "--ca", cert)
        for words in (("hub", "status"), ("hub", "health"), ("hub", "keys")):
            bare = veen(*words, *flags).failed(Exit.NETWORK)
            assert "present one (--cert and --cert-key)" in bare
            assert "https://" not in bare.partition(url)[2], "that is what it says already"
            assert veen(*words, *flags, "--cert", cert, "--cert-key", key).code == Exit.OK
            assert "give --cert too" in veen(*words, *flags, "--cert-key", key).failed(Exit.USAGE)
            assert "must be PEM" in veen(*words, *flags, "--cert", cert).failed(Exit.USAGE)
            assert "must be PEM" in veen(*words, "--hub", url, "--ca", key).failed(Exit.USAGE)
        veen("context", "add", "work", *flags, "--cert", cert, "--cert-key", key).ok()
        veen("hub", "health").ok()
        none = veen("context", "add", "bad", "--cert", tmp_path / "nothing").failed(Exit.USAGE)
        assert "does not exist" in none
        veen("hub", "stop", "-d", tmp_path / "hub").ok()


def certificate(cert: Path, key: Path) -> None:
    """Write a self-signed certificate for 127.0.0.1 and its key."""
    secret = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hub")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(secret.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(secret, hashes.SHA256())
    )
    cert.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key.write_bytes(
        secret.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )


def test_hub_commands_run_as_a_process(town: Town) -> None:
    done = process(town.root, "hub", "status", "--hub", town.url, "--trust", town.hub_id, "--json")
    assert done.json["identity"]["hub_id"] == town.hub_id
    assert "there is no data directory" in process(town.root, "hub", "fsck", "-d", "nowhere").failed(1)
