"""hub.yaml, flags and environment: precedence, and errors that name the key (spec-4 §4.2, §5.2, §5.3)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from veen_core.errors import ConfigError
from veen_core.ids import HubId
from veen_core.stream import stream_id
from veen_hub import main as program
from veen_hub.admission.policy import load_policy
from veen_hub.ops import config as configuration
from veen_hub.ops.anchors import load_anchor
from veen_hub.ops.clock import load_clock
from veen_hub.ops.config import ENVIRONMENT, AnchorSettings, HubConfig

from .certificates import Certificates
from .serving import make_directory


def load(text: str, tmp_path: Path, **overrides: Any) -> HubConfig:
    path = tmp_path / "hub.yaml"
    path.write_text(text)
    return configuration.load(path, {key.replace("__", "."): value for key, value in overrides.items()})


WRONG = [
    ("colour: red", "colour: unknown setting"),
    ("listen: {prot: 1}", "listen.prot: unknown setting"),
    ("listen: 5", "listen: must be a mapping"),
    ("listen: {port: eighty}", "listen.port: must be an integer >= 0, not the text 'eighty'"),
    ("listn: {port: 1}", "listn: unknown setting; did you mean listen? Known are data_dir, "),
    ("listen: {port: -1}", "listen.port: must be an integer >= 0"),
    ("listen: {port: 70000}", "listen.port: 70000 is not between 0 and 65535"),
    ("listen: {port: 1.5}", "listen.port: must be an integer >= 0"),
    ("listen: {port: true}", "listen.port: must be an integer >= 0"),
    ("listen: {host: 1}", "listen.host: must be text"),
    ("listen: {max_connections: 0}", "listen.max_connections: 0 is not between 1 and"),
    ("listen: {request_timeout_sec: 0}", "listen.request_timeout_sec: 0 is not between 1 and"),
    ("listen: {follower_timeout_sec: 0}", "listen.follower_timeout_sec: 0 is not between 1 and"),
    ("workers: 0", "workers: 0 is not between 1 and"),
    ("max_waiting: 0", "max_waiting: 0 is not between 1 and"),
    ("max_page_items: 0", "max_page_items: 0 is not between 1 and"),
    ("checkpoints: {every_entries: 0}", "checkpoints.every_entries: 0 is not between 1 and"),
    ("role: king", "role: 'king' is not one of authority, tenant"),
    ("hub_profile: king", "role: 'king' is not one of authority, tenant"),
    ("log_level: loud", "log_level: 'loud' is not one of"),
    ("gating: maybe", "gating: must be true or false"),
    ("issuers: abc", "issuers: must be a list"),
    ("issuers: [abc]", "issuers[0]: want VerifyKey in hex"),
    ("issuers: [5]", "issuers[0]: must be text"),
    ("streams: [a, 5]", "streams[1]: must be text, not the number 5; put the value in quotes"),
    ("network: {allow: [10.0.0.0/40]}", "network.allow[0]: "),
    ("network: {deny: [1.2.3.4/8]}", "network.deny[0]: "),
    ("tls: {cert: a.pem}", "tls.key: missing"),
    ("tls: {cert: 5, key: b}", "tls.cert: must be a path"),
    ("anchor: {backend: cloud}", "anchor.backend: there is no 'cloud'; available: file, hub"),
    ("anchor: {backend: file}", "anchor.path: missing; backend file"),
    (
        "anchor: {backend: file, path: /no/such/folder/ledger}",
        "anchor.path: folder /no/such/folder does",
    ),
    ("tls:", "tls: empty; give its settings"),
    ("listen: {host: ''}", "listen.host: empty"),
    ("retention: {default: {long_term: true, max_age_sec: 5}}", "retention: long_term keeps everything"),
    ("anchor: {backend: hub}", "anchor.url: missing; backend hub"),
    ("retention: {default: {max_age_sec: old}}", "retention.default.max_age_sec: must be an integer >= 0"),
    ("retention: {streams: {orders: {max_age: 5}}}", "retention.streams.orders.max_age: unknown setting"),
    ("retention: {labels: {xyz: {long_term: true}}}", "retention.labels.xyz: want Label in hex"),
    ("pow: {difficulty: 300}", "pow.difficulty: 300 is not between 0 and 255"),
    ("pow: {difficulty: 9, max_difficulty: 3}", "pow.max_difficulty: must not be below"),
    ("client_keys: {max_msgs: 5}", "client_keys.max_msgs: unknown setting"),
    ("limits: {max_everything: 5}", "limits.max_everything: unknown"),
    ("limits: {max_msg_bytes: 99999999}", "limits: max_msg_bytes = 99999999 would raise"),
    ("limits: {max_msg_bytes: many}", "limits.max_msg_bytes: must be an integer >= 0"),
    ("policy: {name: 5}", "policy.name: must be text"),
    ("level: meta", "level: meta needs a realm; set"),
    ("level: root", "level: 'root' is not one of core, federated, hardened, meta"),
    ("realm: {id: r, key: k, url: 'http://h'}", "realm: give both url and pinned"),
    ("realm: {id: r, key: k, refresh_ms: 0}", "realm.refresh_ms: must be at least 1"),
    ("{level: meta, realm: {id: r, key: k}, tls: {cert: c, key: k}}", "realm.url: missing; with TLS"),
    ("{level: meta, realm: {id: r, key: k}, policy: {name: p}}", "policy.name: a level above core"),
    ("authority_url: ''", "authority_url: must be http"),
    ("authority_url: not a url", "authority_url: must be http"),
    ("authority_url: 'ftp://h'", "authority_url: must be http"),
    ("authority_url: 'http://'", "authority_url: must be http"),
    ("authority_url: 'http://h:99999'", "its host or port is not valid"),
    ("authority_url: 'http://[::1'", "its host or port is not valid"),
    ('authority_url: "http://a\\0b"', "authority_url: must be http"),
    ("authority_url: 'http://h/path'", "without a path, query or fragment"),
    ("authority_url: 'http://h/?a=b'", "without a path, query or fragment"),
    ("authority_url: 'http://u:secret@h'", "remove user and password"),
    ("data_dir: 5", "data_dir: must be a path"),
    ("[1, 2]", "must be a mapping of settings"),
    ("a: [", "not YAML in line 1, column 5: expected the node content"),
    ("? [a]\n: b", "not YAML"),
    ("gating: true\nstreams: [a]\ngating: false", "gating: given twice, again in line 3"),
    ("listen:\n  port: 1\n  port: 2", "port: given twice, again in line 3"),
    ("anchor: {backend: file, path: /tmp}", "anchor.path: /tmp is a folder"),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=[text for text, _message in WRONG])
def test_a_wrong_setting_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(text, tmp_path)
    assert message in str(raised.value)
    assert "\n" not in message
    assert str(tmp_path) in str(raised.value), "and the file it stands in"
    assert "secret" not in str(raised.value)


def test_an_error_in_a_flag_does_not_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        load("listen: {port: 5}", tmp_path, listen__port=99_999)
    assert str(raised.value).startswith("listen.port: ")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        configuration.load(tmp_path / "missing.yaml", {})


def test_an_empty_file_and_empty_sections_are_the_defaults(tmp_path: Path) -> None:
    assert load("", tmp_path) == HubConfig()
    assert load("listen:\npow:\n", tmp_path) == HubConfig()
    assert load("listen:\n", tmp_path, listen__port=5).listen.port == 5


def test_every_setting_can_be_written_down(tmp_path: Path) -> None:
    text = f"""
data_dir: /data
keys_dir: /keys
hub_profile: authority
tenant_id: t
universe_id: u
authority_url: http://veen-authority.veen-system.svc.cluster.local:8080
log_level: debug
gating: false
issuers: ["{"ab" * 32}"]
streams: [orders, "{"cd" * 32}"]
workers: 3
max_waiting: 5
max_page_items: 7
listen: {{host: "::", port: 0, max_connections: 9, backlog: 3, request_timeout_sec: 2}}
tls: {{cert: c, key: k, client_ca: a}}
checkpoints: {{every_entries: 10, every_sec: 0}}
anchor: {{backend: file, path: /ledger, every_sec: 1}}
retention:
  default: {{max_age_sec: 10}}
  streams: {{orders: {{max_bytes: 5}}}}
  labels: {{"{"ef" * 32}": {{long_term: true}}}}
pow: {{difficulty: 1, max_difficulty: 2}}
network: {{allow: [10.0.0.0/8, "::1/128"], deny: [10.1.0.0/16]}}
client_keys: {{max_client_id_lifetime_sec: 5}}
limits: {{max_msg_bytes: 4096}}
"""
    config = load(text, tmp_path)
    assert config.role == "authority"
    assert config.data_dir == Path("/data")
    assert config.stream_ids[0] == stream_id("orders")
    assert config.stream_ids[1].hex() == "cd" * 32
    assert config.tls is not None
    assert config.tls.client_ca == Path("a")
    assert config.client_keys is not None
    assert config.retention.streams["orders"].max_bytes == 5


# --- who wins


def test_flags_win_over_the_environment_over_the_file_over_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "hub.yaml"
    path.write_text(
        "data_dir: /from-file\nlog_level: error\nlisten: {port: 1, host: file.example}\nuniverse_id: file\n"
    )
    monkeypatch.setenv("VEEN_DATA_DIR", "/from-environment")
    monkeypatch.setenv("VEEN_LOG_LEVEL", "warning")
    monkeypatch.setenv("VEEN_LISTEN_PORT", "2")
    monkeypatch.setenv("VEEN_TENANT_ID", "tenant")
    config = program.parse([f"--config={path}", "--data-dir=/from-flag", "--port=3", "--role=authority"])
    assert config.data_dir == Path("/from-flag")
    assert config.listen.port == 3
    assert config.log_level == "warning"
    assert config.listen.host == "file.example"
    assert (config.universe_id, config.tenant_id, config.role) == ("file", "tenant", "authority")
    assert config.gating
    assert config.max_page_items == HubConfig().max_page_items


@pytest.mark.parametrize("role", ["authority", "tenant"])
def test_the_role_can_be_written_as_spec_4_writes_it(role: str) -> None:
    """spec-4 §4.2 and §5.2 pass ``--profile=authority`` and ``--profile=tenant``."""
    assert program.parse(["--data-dir=d", f"--profile={role}"]).role == role


@pytest.mark.parametrize("variable", ENVIRONMENT)
def test_each_variable_sets_its_key(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    value = {
        "VEEN_ROLE": "authority",
        "VEEN_LOG_LEVEL": "error",
        "VEEN_LISTEN_PORT": "9",
        "VEEN_PROBES_PORT": "9",
        "VEEN_AUTHORITY_URL": "http://h",
        "VEEN_REPLICA_OF": "http://h",
        "VEEN_ANCHOR_BACKEND": "file",
    }.get(variable, "/x")
    if variable.startswith("VEEN_TLS_"):  # a certificate and its key belong together
        monkeypatch.setenv("VEEN_TLS_CERT", "/y")
        monkeypatch.setenv("VEEN_TLS_KEY", "/y")
    if variable == "VEEN_ANCHOR_BACKEND":  # a ledger needs its file
        monkeypatch.setenv("VEEN_ANCHOR_PATH", "/y")
    monkeypatch.setenv(variable, value)
    config: Any = program.parse([])
    for part in ENVIRONMENT[variable].split("."):
        config = getattr(config, part)
    assert str(config) == value


def test_a_port_in_the_environment_that_is_no_number_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VEEN_LISTEN_PORT", "eighty")
    with pytest.raises(ConfigError, match=r"listen\.port"):
        program.parse([])


def test_open_is_a_flag_and_closed_is_the_default() -> None:
    assert not program.parse(["--open"]).gating
    assert program.parse([]).gating


# --- what the program says


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """The program sets logging up for the whole process."""
    root, own = logging.getLogger(), logging.getLogger("veen.hub")
    before = (list(root.handlers), root.level, own.level)
    yield
    root.handlers[:], root.level = before[0], before[1]
    own.setLevel(before[2])


def run(capsys: pytest.CaptureFixture[str], *arguments: str, exit_code: int = 1) -> str:
    assert program.main(arguments) == exit_code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("veen-hub: ")
    return line


def test_a_path_that_is_not_a_data_directory_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert "is not a VEEN data directory" in run(capsys, f"--data-dir={tmp_path}")


def test_limits_other_than_the_directorys_are_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    make_directory(tmp_path / "data")
    config = tmp_path / "hub.yaml"
    config.write_text("limits: {max_msg_bytes: 4096}\n")
    line = run(capsys, f"--data-dir={tmp_path / 'data'}", f"--config={config}", exit_code=3)
    assert "limit max_msg_bytes" in line


def test_an_unknown_policy_is_a_one_line_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_directory(tmp_path / "data")
    config = tmp_path / "hub.yaml"
    config.write_text("policy: {name: magic}\n")
    assert "policy.name: there is no 'magic'" in run(
        capsys, f"--data-dir={tmp_path / 'data'}", f"--config={config}"
    )


def test_an_unknown_clock_is_a_one_line_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_directory(tmp_path / "data")
    config = tmp_path / "hub.yaml"
    config.write_text("clock: sundial\n")
    line = run(capsys, f"--data-dir={tmp_path / 'data'}", f"--config={config}")
    assert "clock: there is no 'sundial'; available: " in line


EXTENSIONS = """
[veen_hub.anchors]
paper = paper_anchor:make
blank = paper_anchor:blank
gone = no_such_module:make
bare = paper_anchor:missing
broken = paper_anchor:broken
choosy = paper_anchor:choosy
[veen_hub.clocks]
still = paper_anchor:Still
blank = paper_anchor:blank
gone = no_such_module:make
bare = paper_anchor:missing
broken = paper_anchor:broken
choosy = paper_anchor:choosy
[veen_hub.policies]
gone = no_such_module:make
bare = paper_anchor:missing
broken = paper_anchor:broken
choosy = paper_anchor:choosy
"""
PAPER = """
from veen_core.errors import ConfigError
class Paper:
    def __init__(self, settings):
        self.pages = settings.options["pages"]
    async def publish(self, root):
        return b"page 1"
    async def verify(self, root, anchor_ref):
        return anchor_ref == b"page 1"
def make(settings):
    return Paper(settings)
def blank(*_):
    return object()
def broken(*_):
    return {}["ink"]
def choosy(*_):
    raise ConfigError("options.pages: want one")
class Still:
    def now(self):
        return 1_800_000_000
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another package, as an installer leaves it."""
    (tmp_path / "paper_anchor.py").write_text(PAPER)
    about = tmp_path / "paper_anchor-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: paper-anchor\nVersion: 1\n")
    (about / "entry_points.txt").write_text(EXTENSIONS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("installed")
def test_an_anchor_and_a_clock_of_another_package_are_found_by_entry_point() -> None:
    settings = AnchorSettings(backend="paper", options={"pages": 3})
    anchor = load_anchor(settings)
    assert anchor is not None
    assert anchor.pages == 3  # type: ignore[attr-defined]
    assert load_clock("still").now() == 1_800_000_000


@pytest.mark.usefixtures("installed")
def test_an_entry_point_must_return_an_object_of_the_right_kind() -> None:
    with pytest.raises(ConfigError, match=r"anchor\.backend: 'blank' is not an Anchor"):
        load_anchor(AnchorSettings(backend="blank"))
    with pytest.raises(ConfigError, match="clock: 'blank' is not a Clock"):
        load_clock("blank")


MAKERS: dict[str, Callable[[str], object]] = {
    "anchor.backend": lambda name: load_anchor(AnchorSettings(backend=name)),
    "clock": load_clock,
    "policy.name": lambda name: load_policy(name, HubId(bytes(32)), {}),
}
UNUSABLE = {
    "gone": "(no_such_module:make) cannot be used: ModuleNotFoundError: No module named 'no_such_module'",
    "bare": "(paper_anchor:missing) cannot be used: AttributeError: ",
    "broken": "(paper_anchor:broken) cannot be used: KeyError: 'ink'",
}


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", UNUSABLE)
@pytest.mark.parametrize("key", MAKERS)
def test_an_entry_point_that_cannot_be_used_is_named_with_its_setting(key: str, name: str) -> None:
    with pytest.raises(ConfigError) as raised:
        MAKERS[key](name)
    assert str(raised.value).startswith(f"{key}: {name!r} {UNUSABLE[name]}")


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("key", MAKERS)
def test_an_entry_points_error_about_its_settings_is_shown_unchanged(key: str) -> None:
    with pytest.raises(ConfigError, match=r"^options\.pages: want one$"):
        MAKERS[key]("choosy")


def test_the_example_of_the_documentation_is_a_configuration(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "hub-yaml.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n", 1)[1].split("```", 1)[0]
    config = load(example.replace("/var/lib/veen-anchors", str(tmp_path)), tmp_path)
    assert config.anchor.backend == "file"
    assert config.retention.streams["orders"].max_age_sec == 31_536_000
    for variable, key in ENVIRONMENT.items():
        assert f"`{variable}`" in page
        assert f"`{key}`" in page


def test_an_unusable_certificate_is_a_one_line_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, certificates: Certificates
) -> None:
    make_directory(tmp_path / "data")
    config = tmp_path / "hub.yaml"
    (cert, key), none = certificates.hub, tmp_path / "none"
    for settings, named in (
        (f"cert: {none}, key: {key}", "tls.cert: "),
        (f"cert: {cert}, key: {none}", "tls.key: "),
        (f"cert: {cert}, key: {certificates.client[1]}", "tls.cert, tls.key: "),
        (f"cert: {cert}, key: {key}, client_ca: {none}", "tls.client_ca: "),
        (f"cert: {cert}, key: {key}, client_ca: {key}", "tls.client_ca: "),
    ):
        config.write_text(f"tls: {{{settings}}}\n")
        line = run(capsys, f"--data-dir={tmp_path / 'data'}", f"--config={config}", "--port=0")
        assert line.startswith(f"veen-hub: {named}")


def test_a_hub_without_its_key_does_not_start(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_directory(tmp_path / "data")
    (tmp_path / "data" / "keys").rename(tmp_path / "keys")
    (tmp_path / "empty").mkdir()
    line = run(capsys, f"--data-dir={tmp_path / 'data'}", f"--keys-dir={tmp_path / 'empty'}", "--port=0")
    assert "put its file back" in line
