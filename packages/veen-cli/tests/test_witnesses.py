"""``--witnesses``, ``send --confirm``, ``proof --to-hub``, ``hub keys --note`` and ``hub labels``."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from veen_cli.frame.exits import Exit
from veen_core.hub_evidence import HubEvidence
from veen_core.hub_fork import HubLogFork
from veen_core.hub_identity import HubIdentity
from veen_core.hub_log import origin_of
from veen_core.ids import HubId, UnixTime
from veen_core.keys import SigningKey
from veen_core.tlog.note import Note, parse_key, sign_note
from veen_core.tlog.tree_head import SignedHead, TreeHead
from veen_hub.witness.contradiction import LogContradiction
from veen_storage import Layout
from veen_storage.copies.export import VerifiedHubExport, verify_hub_export
from veen_storage.disk.hub_keys import read_keys

from .conftest import Town
from .running import Done, Witness, ending_hubs, start_witness, veen


@dataclass
class WatchedTown:
    """An open hub that two witnesses cosign, and a policy that needs both."""

    town: Town
    witnesses: list[Witness]
    policy: Path

    def as_(self, who: str, *args: object) -> Done:
        return self.town.as_(who, *args, "--witnesses", self.policy)


def make_witness(folder: Path, *logs: str) -> str:
    """Create a witness and return its verifier key."""
    made = veen("witness", "init", f"{folder.name}.example/w", "--dir", folder, *logs, "--json").json
    return str(made["verifier_key"])


@contextlib.contextmanager
def watched_hub(root: Path) -> Iterator[WatchedTown]:
    root.mkdir(exist_ok=True)
    for name in ("alice", "bob"):
        veen("keygen", "--out", root / name, "--no-passphrase").ok()
    data = ("--data-dir", root / "hub")
    made = veen("hub", "init", *data, "--no-admin", "--json").json
    log = veen("hub", "keys", "--note", *data, "--quiet").ok().out.strip()
    with contextlib.ExitStack() as stack:
        vkeys = [make_witness(root / f"w{n}", "--log", log) for n in (1, 2)]
        witnesses = [start_witness(root / f"w{n}") for n in (1, 2)]
        for each in witnesses:
            stack.callback(each.stop)
        listed = [{"key": key, "url": each.url} for key, each in zip(vkeys, witnesses, strict=True)]
        config = root / "hub.yaml"
        config.write_text(json.dumps({"hub_log": {"witnesses": listed, "max_entries": 1}}))
        policy = root / "policy.txt"
        names = "".join(f"witness w{n} {vkey}\n" for n, vkey in enumerate(vkeys, 1))
        policy.write_text(f"log {log}\n{names}group both all w1 w2\nquorum both\n")
        stack.enter_context(ending_hubs(root))
        flags = ("--port", "0", "--open", "--detach", "--log-level", "error", "--config", config, "--json")
        started = veen("hub", "start", *data, *flags).json
        yield WatchedTown(
            Town(root, started["url"], started["probes_url"], made["hub_id"]), witnesses, policy
        )
        veen("hub", "stop", *data).ok()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedTown]:
    with watched_hub(tmp_path_factory.mktemp("watched")) as made:
        yield made


# --- sending and reading


def test_send_confirm_waits_for_the_quorum_and_says_so(watched: WatchedTown) -> None:
    lines = watched.as_("alice", "send", "one", "-s", "confirmed", "--confirm").ok().out
    assert "confirmed by a quorum of witnesses" in lines
    sent = watched.as_("alice", "send", "two", "-s", "confirmed", "--confirm", "--json").json
    assert sent["confirmed"] is True
    batch = watched.town.as_(
        "alice",
        "send",
        "--batch",
        "-s",
        "confirmed",
        "--confirm",
        "--json",
        "--witnesses",
        watched.policy,
        stdin=b"three\nfour\n",
    ).json
    assert (batch["sent"], batch["confirmed"]) == (2, True)
    plain = watched.as_("alice", "send", "five", "-s", "confirmed", "--json").json
    assert "confirmed" not in plain


def test_confirm_without_a_policy_is_wrong_usage(watched: WatchedTown) -> None:
    alone = watched.as_("alice", "send", "x", "-s", "never", "--confirm-timeout", 3).failed(Exit.USAGE)
    assert "--confirm-timeout has no effect without --confirm" in alone
    why = watched.town.as_("alice", "send", "x", "-s", "never", "--confirm").failed(Exit.USAGE)
    assert "--witnesses" in why
    assert watched.town.as_("alice", "read", "-s", "never", "--json").json["count"] == 0


@pytest.mark.parametrize("command", ["read", "tail", "stream"])
def test_readers_show_which_messages_are_confirmed(watched: WatchedTown, command: str) -> None:
    stream = f"shown/{command}"
    watched.as_("alice", "send", "hello", "-s", stream, "--confirm").ok()
    assert re.search(r"  confirmed  hello$", watched.as_("alice", command, "-s", stream).ok().out, re.M)
    (message,) = watched.as_("alice", command, "-s", stream, "--json").json["messages"]
    assert message["confirmed"] is True
    (message,) = watched.town.as_("alice", command, "-s", stream, "--json").json["messages"]
    assert "confirmed" not in message
    assert "confirmed" not in watched.town.as_("alice", command, "-s", stream).ok().out


def test_a_message_without_a_quorum_fails_with_its_receipt_and_is_shown_as_not_yet_confirmed(
    tmp_path: Path,
) -> None:
    with watched_hub(tmp_path / "own") as own:
        own.as_("alice", "send", "one", "-s", "orders", "--confirm").ok()
        own.witnesses[0].stop()
        short = ("--confirm", "--confirm-timeout", "3")
        done = own.as_("alice", "send", "two", "-s", "orders", *short, "--json")
        assert done.code == Exit.PROTOCOL
        sent = json.loads(done.out)
        assert (sent["stream_seq"], sent["confirmed"]) == (2, False)
        assert "1 of 2 witnesses" in done.err
        assert "do not send it again" in done.err
        assert re.search(
            r"message 2 of label [0-9a-f]{16}… is in the hub's log", json.loads(done.err)["error"]["message"]
        )
        done = own.town.as_(
            "alice", "send", "--batch", "-s", "orders", *short, "--witnesses", own.policy, stdin=b"three\n"
        )
        assert "no quorum of witnesses" in done.failed(Exit.PROTOCOL)
        shown = own.as_("alice", "read", "-s", "orders").ok().out.splitlines()
        assert [line.count("not yet confirmed") for line in shown] == [0, 1, 1]
        strict = tmp_path / "strict.txt"
        strict.write_text(own.policy.read_text() + "#veen max-age 1\n")
        flags = ("-s", "orders", "--witnesses", strict)
        while not (done := own.town.as_("alice", "read", *flags)).code:
            time.sleep(0.2)
        why = done.failed(Exit.PROTOCOL)
        assert "at most 1 s are allowed" in why
        assert "veen witness status" in why


# --- contexts


def test_a_context_holds_the_policy(watched: WatchedTown) -> None:
    town = watched.town
    flags = ("--hub", town.url, "--trust", town.hub_id, "--client", town / "alice")
    added = veen("context", "add", "w", *flags, "--witnesses", watched.policy, "--use", "--json").json
    assert added["witnesses"] == str(watched.policy)
    assert veen("send", "one", "-s", "context", "--confirm", "--json").json["confirmed"] is True
    assert "policy.txt" in veen("context", "show").ok().out


def test_a_policy_file_that_is_missing_or_wrong_is_named(watched: WatchedTown, tmp_path: Path) -> None:
    town = watched.town
    missing = veen("context", "add", "w", "--hub", town.url, "--witnesses", tmp_path / "none.txt")
    assert "none.txt does not exist" in missing.failed(Exit.USAGE)
    why = town.as_("alice", "read", "-s", "x", "--witnesses", tmp_path / "none.txt").failed(Exit.USAGE)
    assert "none.txt: the witness policy cannot be read" in why
    assert "check --witnesses, VEEN_WITNESSES and the context" in why
    wrong = tmp_path / "wrong.txt"
    wrong.write_text("quorum someone\n")
    why = town.as_("alice", "read", "-s", "x", "--witnesses", wrong).failed(Exit.USAGE)
    assert "line 1" in why
    assert "a policy has lines log, witness, group, quorum and #veen max-age" in why
    assert "wrong.txt" in veen("verify", wrong, "--witnesses", wrong).failed(Exit.USAGE)


# --- hub evidence


@pytest.fixture(scope="module")
def evidence(watched: WatchedTown, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("evidence") / "message.evidence"
    for n in range(5):
        watched.as_("alice", "send", f"{n}", "-s", "evidence").ok()
    done = watched.as_("alice", "proof", "--to-hub", 3, "-s", "evidence", "-o", path).ok()
    assert f"veen verify {path} --trust {watched.town.hub_id}" in done.out
    return path


def test_evidence_is_verified_without_the_hub_step_by_step(watched: WatchedTown, evidence: Path) -> None:
    trust = ("--trust", watched.town.hub_id, "--witnesses", watched.policy)
    lines = veen("verify", evidence, *trust).ok().out.splitlines()
    assert lines[0].startswith(f"✓ {evidence}: hub evidence: message 3 of label ")
    assert [line.strip().partition(" ")[0] for line in lines[1:]] == ["1.", "2.", "3.", "4.", "5.", "6."]
    assert "2 of 2 witnesses cosigned it (w1, w2)" in lines[-1]
    (verdict,) = veen("verify", evidence, *trust, "--json").json["verdicts"]
    assert (verdict["kind"], verdict["holds"], len(verdict["steps"])) == ("hub evidence", True, 6)


def test_the_log_line_of_a_policy_pins_the_hub(watched: WatchedTown, evidence: Path) -> None:
    lines = veen("verify", evidence, "--witnesses", watched.policy).ok().out
    assert "the one that the policy names" in lines


def test_without_a_policy_the_hub_alone_vouches(watched: WatchedTown, evidence: Path) -> None:
    lines = veen("verify", evidence, "--trust", watched.town.hub_id).ok().out
    assert "only the hub vouches for its log" in lines


def test_without_a_pin_the_verdict_is_open(watched: WatchedTown, evidence: Path) -> None:
    why = veen("verify", evidence)
    assert why.code == Exit.PROTOCOL
    assert f"verifies for hub {watched.town.hub_id}: give --trust" in why.err


def test_evidence_that_does_not_verify_is_refused(
    watched: WatchedTown, evidence: Path, tmp_path: Path
) -> None:
    trust = ("--trust", watched.town.hub_id)
    other = veen("verify", evidence, "--trust", "ab" * 32)
    assert other.code == Exit.PROTOCOL
    assert "is pinned" in other.err
    strangers = tmp_path / "strangers.txt"
    text = watched.policy.read_text()
    own = make_witness(tmp_path / "w3")
    strangers.write_text(text.replace("group both all w1 w2", f"witness w3 {own}\ngroup both all w1 w2 w3"))
    few = veen("verify", evidence, *trust, "--witnesses", strangers)
    assert few.code == Exit.PROTOCOL
    assert "2 of 3 witnesses" in few.err
    found = HubEvidence.decode(evidence.read_bytes())
    changed = tmp_path / "changed.evidence"
    for at in range(0, len(found.encode()), 37):
        damaged = bytearray(evidence.read_bytes())
        damaged[at] ^= 1
        changed.write_bytes(damaged)
        assert veen("verify", changed, *trust, "--witnesses", watched.policy).code == Exit.PROTOCOL, at


def test_inspect_names_evidence_hub_checkpoints_and_policies(
    watched: WatchedTown, evidence: Path, tmp_path: Path
) -> None:
    assert veen("inspect", evidence).ok().out.startswith(f"{evidence}: hub evidence (RESOLUTIONS P1)")
    note = tmp_path / "hub.note"
    note.write_bytes(HubEvidence.decode(evidence.read_bytes()).checkpoint)
    shown = veen("inspect", note).ok().out
    assert shown.startswith(f"{note}: hub checkpoint (C2SP tlog-checkpoint)")
    assert "w1.example/w" in shown
    assert "a cosignature of 20" in shown
    (found,) = veen("inspect", watched.policy, "--json").json["objects"]
    assert (found["kind"], found["value"]["quorum"]) == ("witness policy", "both")


def test_evidence_is_not_overwritten_unless_forced(watched: WatchedTown, evidence: Path) -> None:
    before = evidence.read_bytes()
    ask = ("proof", "get", "--to-hub", 4, "-s", "evidence", "--out", evidence)
    assert "--force" in watched.as_("alice", *ask).failed(Exit.USAGE)
    assert evidence.read_bytes() == before
    made = watched.as_("alice", *ask, "--force", "--json").json
    assert (made["stream_seq"], made["file"]) == (4, str(evidence))
    assert HubEvidence.decode(evidence.read_bytes()).receipt.stream_seq == 4
    assert [each.name for each in evidence.parent.iterdir()] == [evidence.name]
    evidence.write_bytes(before)


def test_to_hub_needs_a_file_and_chooses_the_tree(watched: WatchedTown, tmp_path: Path) -> None:
    ask = ("proof", "--to-hub", 1, "-s", "evidence")
    assert "--out" in watched.as_("alice", *ask).failed(Exit.USAGE)
    both = watched.as_("alice", *ask, "--against", 2, "--out", tmp_path / "x")
    assert "--against" in both.failed(Exit.USAGE)
    none = watched.as_("alice", "proof", "--to-hub", 99, "-s", "evidence", "--out", tmp_path / "x")
    assert "no such entry" in none.failed(Exit.REFUSED)


# --- contradictions


@pytest.fixture(scope="module")
def two_notes(watched: WatchedTown, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two hub checkpoints of one size that the hub's key has signed."""
    folder = tmp_path_factory.mktemp("notes")
    identity = HubIdentity.decode(identity_of(watched, folder).read_bytes())
    (key,) = read_keys(Layout(watched.town / "hub").keys, identity).values()
    paths = (folder / "held.note", folder / "shown.note")
    for n, path in enumerate(paths):
        path.write_bytes(signed_head(key, watched.town.hub_id, n).encode())
    return paths


def signed_head(key: SigningKey, hub_id: str, n: int) -> SignedHead:
    head = TreeHead(f"veen.hub/{hub_id}", 7, bytes([n]) * 32)
    return SignedHead(head, Note(head.text, (sign_note(key, head.origin, head.text),)))


def identity_of(watched: WatchedTown, folder: Path) -> Path:
    path = folder / "hub-identity.cbor"
    veen("hub", "keys", "--data-dir", watched.town / "hub", "--out", path).ok()
    return path


def test_two_hub_checkpoints_that_contradict_each_other_fail_together(
    watched: WatchedTown, two_notes: tuple[Path, Path], tmp_path: Path
) -> None:
    trust = ("--trust", watched.town.hub_id)
    identity = identity_of(watched, tmp_path)
    assert "a hub log of 7 entries" in veen("verify", two_notes[0], identity, *trust).ok().out
    done = veen("verify", *two_notes, identity, *trust)
    assert done.code == Exit.PROTOCOL
    assert "the hub signed two hub logs of 7 entries" in done.err
    alone = veen("verify", two_notes[0])
    assert alone.code == Exit.PROTOCOL
    assert "--trust" in alone.err


def test_evidence_of_a_fork_convicts_the_hub(
    watched: WatchedTown, two_notes: tuple[Path, Path], tmp_path: Path
) -> None:
    identity = HubIdentity.decode(identity_of(watched, tmp_path).read_bytes())
    earlier, later = (path.read_bytes() for path in two_notes)
    fork = HubLogFork(identity=identity, origin=origin_of(identity.hub_id), earlier=earlier, later=later)
    path = tmp_path / "fork.cbor"
    path.write_bytes(fork.encode())
    assert "convict the pinned hub" in veen("verify", path, "--trust", watched.town.hub_id).ok().out
    assert f"convict hub {watched.town.hub_id}" in veen("verify", path).ok().out
    other = veen("verify", path, "--trust", "ab" * 32)
    assert (other.code, "is pinned" in other.err) == (Exit.PROTOCOL, True)


def test_a_contradiction_that_a_witness_kept_convicts_the_log(
    watched: WatchedTown, two_notes: tuple[Path, Path], tmp_path: Path
) -> None:
    notes = tuple(path.read_text() for path in two_notes)
    path = tmp_path / "x.contradiction"
    path.write_bytes(LogContradiction(claim="two-roots", notes=notes, seen_at=UnixTime(1)).encode())
    assert "convict the log" in veen("verify", path, "--witnesses", watched.policy).ok().out
    identity = identity_of(watched, tmp_path)
    assert veen("verify", path, identity, "--trust", watched.town.hub_id).code == 0
    unknown = veen("verify", path)
    assert (unknown.code, "without the log's key" in unknown.err) == (Exit.PROTOCOL, True)


# --- keys and labels


def test_the_verifier_key_is_the_same_from_the_directory_and_from_the_hub(watched: WatchedTown) -> None:
    town = watched.town
    line = veen("hub", "keys", "--note", "--data-dir", town / "hub", "--quiet").ok().out
    key = parse_key(line.strip())
    assert key.name == f"veen.hub/{town.hub_id}"
    asked = ("--hub", town.url, "--trust", town.hub_id)
    assert veen("hub", "keys", "--note", *asked).ok().out == line
    assert veen("hub", "keys", "--note", *asked, "--json").json["verifier_keys"] == [line.strip()]


def test_after_a_rotation_both_verifier_keys_are_printed(tmp_path: Path) -> None:
    veen("hub", "init", "--data-dir", tmp_path / "hub", "--no-admin").ok()
    veen("hub", "rotate", "--data-dir", tmp_path / "hub", "--window", "1h").ok()
    keys = ("hub", "keys", "--note", "--data-dir", tmp_path / "hub")
    lines = veen(*keys, "--quiet").ok().out.splitlines()
    assert len({parse_key(line).public for line in lines}) == 2
    shown = veen(*keys)
    assert shown.out.splitlines() == lines
    assert "the hub log has no checkpoint yet" in shown.err
    veen(*keys, "--quiet", "--out", tmp_path / "identity.cbor").ok()
    assert (tmp_path / "identity.cbor").exists()


def test_the_verifier_key_has_the_configured_name_before_the_first_hub_checkpoint(tmp_path: Path) -> None:
    data, config = ("--data-dir", tmp_path / "hub"), tmp_path / "hub.yaml"
    made = veen("hub", "init", *data, "--no-admin", "--json").json
    config.write_text("hub_log: {origin: hub.example/log}\n")
    flags = ("--port", "0", "--open", "--detach", "--log-level", "error", "--config", config, "--json")
    with ending_hubs(tmp_path):
        started = veen("hub", "start", *data, *flags).json
        asked = ("hub", "keys", "--note", "--hub", started["url"], "--trust", made["hub_id"])
        before = veen(*asked).ok().out
        assert parse_key(before.strip()).name == "hub.example/log"
        veen("keygen", "--out", tmp_path / "alice", "--no-passphrase").ok()
        town = Town(tmp_path, started["url"], started["probes_url"], made["hub_id"])
        town.as_("alice", "send", "one", "-s", "orders").ok()
        town.as_("alice", "proof", "--to-hub", 1, "-s", "orders", "-o", tmp_path / "evidence").ok()
        assert veen(*asked).ok().out == before
        assert veen("hub", "keys", "--note", *data).ok().out == before
        veen("hub", "stop", *data).ok()


def test_a_hub_that_does_not_sign_says_so_when_it_starts_and_in_its_status(tmp_path: Path) -> None:
    data, config = ("--data-dir", tmp_path / "hub"), tmp_path / "hub.yaml"
    made = veen("hub", "init", *data, "--no-admin", "--json").json
    config.write_text("hub_log: {memories: {urls: ['http://127.0.0.1:1']}}\n")
    flags = ("--port", "0", "--open", "--detach", "--log-level", "error", "--config", config)
    with ending_hubs(tmp_path):
        started = veen("hub", "start", *data, *flags).ok().out.splitlines()
        assert started[1] == "it signs nothing yet: veen hub health says why"
        url = started[0].split()[3]
        shown = veen("hub", "status", "--hub", url, "--trust", made["hub_id"]).ok().out
        assert re.search(r"^signing +NO: 0 of 1 required memories have answered", shown, re.MULTILINE)
        assert re.search(r"^memories +\S", shown, re.MULTILINE)
        veen("hub", "stop", *data).ok()
        why = veen("hub", "start", *data, *flags, "--json").json["not_signing"]
        assert why.startswith("0 of 1 required memories have answered")
        veen("hub", "stop", *data).ok()
    config.write_text(f"hub_log: {{memories: {{heads_file: {tmp_path / 'heads'}}}}}\n")
    (tmp_path / "heads").touch()
    with ending_hubs(tmp_path):
        started_json = veen("hub", "start", *data, *flags, "--json").json
        assert started_json["not_signing"] is None, "the heads file answers at once"
        signs = veen("hub", "status", "--hub", started_json["url"], "--trust", made["hub_id"]).ok().out
        assert "signing" not in signs
        assert "the heads file" in signs
        veen("hub", "stop", *data).ok()


def test_verified_labels_are_all_labels_with_their_heads(watched: WatchedTown) -> None:
    sent = {
        name: watched.as_("alice", "send", "x", "-s", f"labels/{name}", "--confirm", "--json").json
        for name in ("a", "b")
    }
    found = watched.as_("alice", "hub", "labels", "--verified", "--json").json
    assert found["verified"]
    assert found["quorum_at"] is not None
    rows = {row["label"]: row for row in found["labels"]}
    for name, receipt in sent.items():
        row = rows[receipt["label"]]
        assert (row["upto_seq"], row["mmr_root"]) == (receipt["stream_seq"], receipt["mmr_root"])
        assert row["stream"] == f"labels/{name}"
    listed = veen("hub", "labels", "--data-dir", watched.town / "hub", "--json").json
    assert {row["label"] for row in listed["labels"]} >= set(rows)
    assert not listed["verified"]
    lines = watched.as_("alice", "hub", "labels", "--verified").ok().out.splitlines()
    assert lines[-2].startswith(f"{len(rows)} labels: all that the hub log has")
    assert "2 of 2 witnesses" in lines[-1]
    plain = watched.town.as_("bob", "hub", "labels", "--verified").ok().out
    assert "only the hub vouches" in plain


def test_an_export_of_a_whole_hub_verifies_offline_and_shows_a_missing_label(
    watched: WatchedTown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        watched.as_("alice", "send", "x", "-s", f"whole/{name}", "--confirm").ok()
    monkeypatch.setenv("VEEN_STREAM", "another")
    data, hub_id = ("--data-dir", watched.town / "hub"), watched.town.hub_id
    export = ("hub", "export", *data, "--all")
    made = veen(*export, "--out", tmp_path / "whole", "--json").json
    assert made["hub_id"] == hub_id
    assert made["labels"] == len(list((tmp_path / "whole" / "labels").iterdir())) >= 2
    shown = veen(*export, "--form", "chunks", "--out", tmp_path / "chunks").ok().out.splitlines()
    assert shown[0].startswith(f"exported {made['labels']} labels and the hub log of ")
    assert shown[1] == f"verify it anywhere with: veen verify {tmp_path / 'chunks'} --trust {hub_id}"
    for name in ("whole", "chunks"):
        verify = ("verify", tmp_path / name, "--trust", hub_id)
        (verdict,) = veen(*verify, "--json").json["verdicts"]
        assert verdict["kind"] == "export of a hub"
        assert f"in {made['labels']} labels" in verdict["why"]
        assert "only the hub vouches" in verdict["why"]
        assert "2 of 2 witnesses cosigned it" in veen(*verify, "--witnesses", watched.policy).ok().out
        veen("verify", tmp_path / name).failed(Exit.PROTOCOL)
        veen("verify", tmp_path / name, "--trust", "ab" * 32).failed(Exit.PROTOCOL)
    first_pk = veen("hub", "keys", *data, "--json").json["keys"][0]["hub_pk"]
    veen("verify", tmp_path / "whole", "--trust", first_pk).ok()
    strangers = tmp_path / "strangers.txt"
    strangers.write_text(f"witness x {make_witness(tmp_path / 'w9')}\nquorum x\n")
    verify = ("verify", tmp_path / "whole", "--trust", hub_id)
    assert "no quorum" in veen(*verify, "--witnesses", strangers).failed(Exit.PROTOCOL)
    shutil.rmtree(next((tmp_path / "whole" / "labels").iterdir()))
    assert "is missing: the hub log has its head" in veen(*verify).failed(Exit.PROTOCOL)


def test_an_export_of_a_whole_hub_takes_no_range(watched: WatchedTown, tmp_path: Path) -> None:
    export = ("hub", "export", "--data-dir", watched.town / "hub", "--out", tmp_path / "out", "--all")
    for flag in (
        ("--stream", "x"),
        ("--label", "ab" * 32),
        ("--from", 2),
        ("--upto", 3),
        ("--since", "2020-01-01"),
    ):
        assert f"remove {flag[0]}" in veen(*export, *flag).failed(Exit.USAGE)
    assert not (tmp_path / "out").exists()


def test_an_export_of_a_hub_without_hub_log_or_with_skipped_checks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = veen("hub", "init", "--data-dir", tmp_path / "hub", "--no-admin", "--json").json
    veen("hub", "export", "--data-dir", tmp_path / "hub", "--all", "--out", tmp_path / "whole").ok()
    verify = ("verify", tmp_path / "whole", "--trust", made["hub_id"])
    assert "the hub log is empty" in veen(*verify).ok().out
    (tmp_path / "policy.txt").write_text("quorum none\n")
    veen(*verify, "--witnesses", tmp_path / "policy.txt").failed(Exit.PROTOCOL)

    def partly(folder: Path, hub_id: HubId) -> VerifiedHubExport:
        return dataclasses.replace(verify_hub_export(folder, hub_id), followed_all=False)

    monkeypatch.setattr("veen_cli.evidence.verify.verify_hub_export", partly)
    assert "--allow-partial" in veen(*verify).failed(Exit.PROTOCOL)
    assert "NOT CHECKED" in veen(*verify, "--allow-partial").ok().out


def test_labels_needs_a_hub_or_a_directory(watched: WatchedTown) -> None:
    assert "--hub" in veen("hub", "labels", "--verified").failed(Exit.USAGE)
    both = ("--verified", "--data-dir", watched.town / "hub", "--hub", watched.town.url)
    assert "give --hub, not --data-dir" in veen("hub", "labels", *both).failed(Exit.USAGE)
    hub = ("--hub", watched.town.url)
    assert "--verified" in veen("hub", "labels", *hub).failed(Exit.USAGE)
