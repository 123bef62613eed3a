"""Every example of every ``--help`` runs.

One world is prepared: a hub on loopback with a history, identities, tokens, and the files that the examples
name. There they run in the order of the commands, each as it is written but for ``INSTEAD`` and the names
that ``PREPARED`` collects, like HUB_ID. What does not run to an end by itself is named in ``ENDLESS``.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Never

import click
import pytest

from veen_cli.frame.command_class import Command
from veen_hub.client.blocking import connect
from veen_overlays.identifiers import TransferId

from .kubectl_stand_in import use_stand_in
from .running import SCRIPTS, Done, ending_hubs, start_witness, veen
from .test_identity_records import id_token, key_set
from .test_tree import LEAVES

MAX_SECONDS = 20

ENDLESS = {
    "veen hub start --data-dir hub": "runs in the foreground",
    "veen hub start --data-dir hub --config hub.yaml": "runs in the foreground",
    "veen hub start --data-dir replica --replica-of http://127.0.0.1:8080 --port 8090": "likewise",
    "veen stream --stream orders --follow --out jsonl": "follows the stream",
    "veen tail --stream orders --last 3 --follow": "follows the stream",
    "veen kv watch --stream config": "follows the stream",
    "veen witness serve --dir witness": "runs in the foreground",
    "veen witness serve --dir witness --listen 0.0.0.0:8090 --tls-cert chain.pem --tls-key key.pem": (
        "runs in the foreground"
    ),
    "veen authority handover new-hub --realm shop --reader realm": "needs a hub of the realm that goes on",
    "veen kube destroy --tenant acme": "asks before it deletes",
    "veen console --hub http://127.0.0.1:8080": "serves until it is stopped",
    "veen console --hub https://hub.example --trust HUB_ID --witnesses policy.txt": "likewise",
    "veen console --open": "likewise",
    "veen monitor https://hub.example --trust HUB_ID --state monitor": "monitors until it is stopped",
    "veen monitor https://a.example https://b.example --witnesses policy.txt --state monitor": "likewise",
}
"""Examples that wait for Ctrl-C or an answer, or need a second hub: their arguments are parsed only."""

IN_AN_EMPTY_FOLDER = (
    "veen keygen --out alice",
    "VEEN_PASSPHRASE=… veen keygen --out alice --quiet",
    "veen hub init --data-dir hub --admin admin",
    "veen hub init --data-dir hub --no-admin --profile bulk",
    "veen hub reshard --data-dir hub --shards 2 --out hub-of-two",
    "veen hub reshard --data-dir hub-of-two --shards 1 --out hub-of-one",
    "veen hub successor --new-keys successor-keys",
    "veen witness init witness.example.org/w1 --dir witness --log VKEY",
    "veen witness init witness.example.org/w1 --dir witness --log OLD_VKEY --log NEW_VKEY",
)
"""Examples that create or move something that the test world already contains."""

LATER = (
    # Examples that need what other examples fetch,
    "veen verify receipt.cbor hub-identity.cbor --trust HUB_ID",
    "veen verify receipt.cbor consistency.cbor --trust HUB_ID --client bob",
    "veen inspect receipt.cbor",
    # that remove what other examples need,
    "veen id device phone.pub --disable --client bob",
    "veen id revoke --device DEVICE_ID --reason lost --client bob",
    "veen id revoke --own-ctx --realm shop",
    # the handover, after which the hub accepts nothing,
    "veen hub handover --client admin --new-hub NEW_HUB_ID --url http://127.0.0.1:8090 --out handover.cbor",
    "veen hub promote --data-dir replica --new-keys successor-keys --out new-hub --admin admin",
    "veen authority handover new-hub --realm shop --reader realm",
    "veen hub lost --data-dir new-hub --receipts receipts.cborseq",
    "veen hub promote --data-dir replica --new-keys successor-keys --out new-hub --admin admin --unplanned",
    # and examples that need a stopped hub.
    "veen hub stop --data-dir hub",
    "veen hub fsck --data-dir hub",
    "veen hub fsck --data-dir hub --quick --json",
    "veen hub repair --data-dir hub",
    "veen hub clone --data-dir hub --out backup",
    "veen hub clone --data-dir hub --out new-home --with-keys",
    "veen hub fork --data-dir hub --out fork --admin admin",
    "veen hub rotate --data-dir hub --window 7d",
    "veen hub start --data-dir hub --port 8080 --detach",
    "veen kube rotate --tenant acme",
    "veen kube destroy --tenant acme --yes",
)
"""Examples that run after all others, in this order."""

BEFORE = {
    "veen verify receipt.cbor consistency.cbor --trust HUB_ID --client bob": (
        "veen consistency get 1 2 --stream orders --out consistency.cbor"
    ),
    "veen hub reshard --data-dir hub --shards 2 --out hub-of-two": (
        "veen hub init --data-dir hub --admin ../admin"
    ),
    "veen hub reshard --data-dir hub-of-two --shards 1 --out hub-of-one": (
        "(veen hub init --data-dir hub --admin ../admin"
        " && veen hub reshard --data-dir hub --shards 2 --out hub-of-two)"
    ),
    "veen hub init --data-dir hub --admin admin": "veen keygen --out admin --no-passphrase",
    "veen hub export --data-dir hub --stream orders --out evidence": "rm -r evidence",
    "veen hub export --data-dir hub --stream orders --from 10 --upto 20 --out evidence": "rm -r evidence",
    "veen proof --to-hub 1 --stream orders --witnesses policy.txt -o message.evidence": "rm message.evidence",
    "veen hub promote --data-dir replica --new-keys successor-keys --out new-hub --admin admin": (
        "until [ -e replica/handover.cbor ]; do sleep 0.1; done"
    ),
    "veen hub promote --data-dir replica --new-keys successor-keys --out new-hub --admin admin --unplanned": (
        "rm -r new-hub && veen hub stop --data-dir replica && rm replica/handover.cbor"
    ),
    "veen kube destroy --tenant acme --yes": "veen kube apply --tenant acme --persistent --heads-memory",
    "veen kube rotate --tenant acme": "veen kube apply --tenant acme --persistent --heads-memory",
    "veen kube upgrade --tag 0.2.0 --universe stage --tenant acme": (
        "veen kube apply --tenant acme --universe stage --persistent --heads-memory"
    ),
    "veen kube status --universe stage --json": "veen kube apply --tenant stage-1 --universe stage",
    "veen wallet close WALLET": "veen wallet withdraw WALLET 240",
    "veen completion fish > ~/.config/fish/completions/veen.fish": "mkdir -p .config/fish/completions",
}
"""Commands that prepare the world for one example."""

INSTEAD = {
    "http://127.0.0.1:8080": "URL",
    "https://hub.example": "URL",
    "https://witness.example.org:8090": "WITNESS",
    "--port 8080": "--port 0",
    "tail -f ": "cat ",
}
"""Replacements in examples: addresses that do not exist here, and commands without an end."""

IDENTITIES = ("admin", "alice", "bob", "bakery", "phone", "realm", "registrar")
PREPARED: tuple[tuple[str, dict[str, str]], ...] = (
    *((f"veen keygen --out {name} --no-passphrase", {}) for name in IDENTITIES),
    *((f"veen id card --client {name} --out {name}.pub", {}) for name in ("alice", "bob", "phone")),
    ("veen id show --client bob --json", {"BOB": "id_sign"}),
    ("echo 'issuers: [BOB]' >> hub.yaml", {}),
    ("veen hub init --data-dir hub --admin admin --json", {"HUB_ID": "hub_id"}),
    (
        "veen hub start --data-dir hub --config hub.yaml --detach --json",
        {"URL": "url", "PROBES": "probes_url"},
    ),
    ("veen hub keys --data-dir hub --out hub-identity.cbor", {}),
    ("veen hub keys --note --data-dir hub --json", {"VKEY": "verifier_keys", "OLD_VKEY": "verifier_keys"}),
    ("veen hub init --data-dir other --no-admin", {}),
    ("veen hub keys --note --data-dir other --json", {"NEW_VKEY": "verifier_keys"}),
    ("veen witness init witness.example.org/w1 --dir witness --log VKEY", {}),
    ("(echo log $(veen hub keys --note --data-dir hub); echo quorum none) > policy.txt", {}),
    # Identities of the realm.
    ("veen id principal --client bob --reader realm", {}),
    ("veen id device phone.pub --client bob --reader realm --json", {"DEVICE_ID": "device_id"}),
    ("veen id ctx --realm shop --client bob --reader realm --json", {"CTX_ID": "ctx_id"}),
    ("veen id org --client bakery --reader realm --json", {"ORG_ID": "org_id"}),
    ("veen id group bakers --add CTX_ID --client bakery --reader realm --json", {"GROUP_ID": "group_id"}),
    ("veen id role cashier --ctx CTX_ID --client bakery --reader realm", {}),
    # Messages: number 2 of orders has an attachment; number 7 of orders and of till comes from Bob's phone.
    ("veen cap issue --issuer bob --subject phone -s orders -s till --out phone.cap", {}),
    ("veen cap authorize phone.cap --client phone", {}),
    ("veen id client-id --stream orders --json", {"CLIENT_ID": "client_id", "LABEL": "label"}),
    ("veen send 'one tea' --stream orders --to bob.pub", {}),
    ("veen send 'the contract' --stream orders --to bob.pub --attach contract.txt", {}),
    ("seq 3 6 | veen send --stream orders --batch", {}),
    ("seq 1 6 | veen send --stream till --batch", {}),
    ("veen send 'from the phone' --stream orders --client phone --cap phone.cap", {}),
    ("veen send 'from the phone' --stream till --client phone --cap phone.cap", {}),
    ("seq 8 100 | veen send --stream orders --batch", {}),
    ("veen hub checkpoint --client admin", {}),
    ("veen checkpoint get --stream orders --out checkpoint.cbor", {}),
    ("veen hub export --data-dir hub --stream orders --out evidence", {}),
    ("veen proof --to-hub 1 --stream orders --out message.evidence", {}),
    ("veen cap issue --issuer admin --subject alice -s logs --out logs.cap --json", {"AUTH_REF": "auth_ref"}),
    ("veen cap authorize logs.cap", {}),
    # Keys, jobs and wallets: two wallets on the ledger, one with a stream of its own.
    *((f"veen kv put colour {value} --stream config", {}) for value in ("red", "blue", "grey")),
    ("seq 4 100 | veen send --stream config --batch", {}),
    ("veen queue put 'resize 16.png' --stream jobs --json", {"JOB": "job"}),
    ("veen wallet open --realm shop --currency EUR --ledger shop --json", {"WALLET": "wallet"}),
    ("veen wallet deposit WALLET 500 --ledger shop", {}),
    ("veen wallet open --realm savings --currency EUR --ledger shop --json", {"TO_WALLET": "wallet"}),
    ("seq 4 100 | veen send --stream shop --batch", {}),
    ("veen wallet open --realm savings --currency EUR", {}),
    # A replica, which gets the handover by itself.
    ("veen hub successor --new-keys successor-keys --json", {"NEW_HUB_ID": "hub_id"}),
    ("veen hub start --data-dir replica --replica-of URL --port 0 --detach --log-level error", {}),
    ("veen send 'before the cutover' --stream orders --receipt receipts.cborseq", {}),
)
"""Commands, and for placeholders in examples the field of the answer that replaces them."""

RUN_ELSEWHERE = ("veen_cli.record.", "veen_cli.query.")
"""Commands whose examples ``test_recorder_examples.py`` runs."""
ON_PAGES = ("veen_cli.rpc.", "veen_cli.discovery.", "veen_cli.operations.")
"""Commands that guides run; here only their arguments are parsed."""
FILES_OF_PAGES = (
    *("descriptor.json", "shop.cap", "lease-1.txt", "rates.csv", "weights.bin", "config.json"),
    *("definition.json", "rates.evidence", "confirmation.json"),
)


def examples_of(*, modules: tuple[str, ...]) -> dict[str, click.Context]:
    """Return the examples in the help of all commands of these modules."""
    return {
        line.strip(): ctx
        for _, command, ctx in LEAVES
        if isinstance(command, Command) and command.callback.__module__.startswith(modules)
        for line in re.split(r"^Examples?:$", command.get_help(ctx), flags=re.MULTILINE)[-1].splitlines()
        if line.strip()
    }


NOT_HERE = examples_of(modules=RUN_ELSEWHERE + ON_PAGES)
EXAMPLES = {line: ctx for line, ctx in examples_of(modules=("veen_cli.",)).items() if line not in NOT_HERE}


class Endless(BaseException):
    """An example takes too long; not an Exception, so that no code under test catches it."""


@contextlib.contextmanager
def bounded(seconds: int) -> Iterator[None]:
    def ring(_signal: int, _frame: FrameType | None) -> Never:
        raise Endless

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@dataclass
class World:
    """The folder in which examples run, and the values of their placeholders."""

    root: Path
    names: dict[str, str] = field(default_factory=dict)
    instead: Mapping[str, str] = field(default_factory=INSTEAD.copy)

    def told(self, line: str) -> str:
        """Return the line with its placeholders replaced."""
        for shown, here in self.instead.items():
            line = line.replace(shown, here)
        return re.sub(rf"\b({'|'.join(self.names)})\b", lambda found: self.names[found[0]], line)

    def run(self, line: str) -> Done:
        """Run a line in this process, or in a shell if it uses shell syntax."""
        told = self.told(line)
        try:
            with bounded(MAX_SECONDS):
                if told.startswith("veen ") and not re.search(r"[|$<>]", told):
                    return veen(*shlex.split(told)[1:])
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", told], capture_output=True, text=True, check=False
                )
                return Done(done.returncode, done.stdout, done.stderr)
        except Endless:
            return Done(-1, "", f"not at an end after {MAX_SECONDS} s")

    def prepare(self, line: str, names: dict[str, str]) -> None:
        done = self.run(line)
        assert done.code == 0, (line, done)
        for name, key in names.items():
            value = done.json[key]
            self.names[name] = value if isinstance(value, str) else value[0]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}")
    use_stand_in(tmp_path, monkeypatch)
    monkeypatch.setenv("VEEN_CLIENT", str(tmp_path / "alice"))
    monkeypatch.setenv("VEEN_PASSPHRASE", "for whom is asked")
    for name in ("contract.txt", "report.pdf", "figures.png", "app.log", "chain.pem", "key.pem"):
        Path(name).write_text("a line\n")
    Path("t.jwt").write_text(id_token())
    Path("keys.json").write_text(key_set())
    Path("hub.yaml").write_text(
        "gating: false\nlog_level: error\nlisten: {port: 0}\nanchor: {backend: file, path: anchors}\n"
    )
    made = World(tmp_path, {"TRANSFER_ID": "ab" * TransferId.SIZE})
    with ending_hubs(tmp_path):
        for line, names in PREPARED:
            made.prepare(line, names)
            for variable, name in (("VEEN_HUB", "URL"), ("VEEN_PROBES", "PROBES"), ("VEEN_TRUST", "HUB_ID")):
                if name in names:
                    monkeypatch.setenv(variable, made.names[name])
        with connect(made.names["URL"], trust=made.names["HUB_ID"]) as hub:
            (message,) = hub.stream("orders").read(1, 1)
        for name in ("message.cbor", "m.cbor"):
            Path(name).write_bytes(message.entry.msg_bytes)
        witness = start_witness(tmp_path / "witness")
        made.names["WITNESS"] = witness.url
        try:
            yield made
        finally:
            witness.stop()


def test_every_example_runs(world: World) -> None:
    wrong = []
    for number, line in enumerate(sorted(EXAMPLES, key=turn)):
        if line in ENDLESS:
            parse(world.told(line), EXAMPLES[line])
            continue
        folder = world.root
        if line in IN_AN_EMPTY_FOLDER:
            folder = world.root / f"empty-{number}"
            folder.mkdir()
        with contextlib.chdir(folder):
            if line in BEFORE:
                world.prepare(BEFORE[line], {})
            done = world.run(line)
        if done.code != 0:
            wrong.append(f"{line}\n    {done.code}: {done.err}")
    assert not wrong, "\n".join(wrong)


def turn(line: str) -> int:
    return LATER.index(line) if line in LATER else -1


def parse(line: str, ctx: click.Context) -> None:
    """Raise ``click.UsageError`` if the command does not take these arguments."""
    args = shlex.split(line.removeprefix(ctx.command_path))
    ctx.command.make_context(ctx.info_name, args, parent=ctx.parent)


def test_the_examples_that_pages_run_parse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("shop", "admin", "operator", "calls-reader", "realm"):
        (tmp_path / name).mkdir()
    for name in FILES_OF_PAGES:
        (tmp_path / name).touch()
    for name in ("alice", "bob", "phone", "new-bob"):
        veen("keygen", "--out", name, "--no-passphrase").ok()
        veen("id", "card", "--client", name, "--out", f"{name}.pub").ok()
    for line, ctx in examples_of(modules=ON_PAGES).items():
        told = re.split(" [|>] ", line[line.index("veen ") :])[0]
        told = re.sub(r"\b(HUB_ID|CLIENT_ID|PAYER|PAYEE|AUTH_REF)\b", "ab" * 32, told)
        parse(told, ctx)


def test_an_example_that_does_not_parse_is_reported() -> None:
    for line in ENDLESS:
        with pytest.raises(click.UsageError):
            parse(f"{line} --no-such-option", EXAMPLES[line])


def test_the_tables_name_existing_examples_only() -> None:
    assert {*ENDLESS, *IN_AN_EMPTY_FOLDER, *LATER, *BEFORE} <= EXAMPLES.keys()
    assert [shown for shown in INSTEAD if not any(shown in line for line in EXAMPLES)] == []
