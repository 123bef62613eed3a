"""The section ``hub_log`` of hub.yaml: every mistake is named with its key and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from veen_core.errors import ConfigError
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import COSIGNATURE, NoteKey
from veen_hub.ops import config as configuration
from veen_hub.ops.config import HubConfig

from .conftest import StartHub
from .hub_logs import HUB_VKEY

KEY = NoteKey("witness.example/w", COSIGNATURE, SigningKey(SigningSeed(bytes(32))).public)
WITNESS = {"key": KEY.text, "url": "https://witness.example/prefix"}


def load(hub_log: object, tmp_path: Path) -> HubConfig:
    path = tmp_path / "hub.yaml"
    path.write_text(yaml.safe_dump({"data_dir": str(tmp_path / "data"), "hub_log": hub_log}))
    return configuration.load(path, {})


def test_every_setting_has_a_default(tmp_path: Path) -> None:
    found = load({}, tmp_path).hub_log
    assert (found.interval_sec, found.max_entries, found.origin, found.witnesses) == (1, 4_096, None, ())
    memories = found.memories
    assert (memories.required, memories.heads_file, memories.urls, memories.anchors) == (1, None, (), True)


def test_a_whole_section_is_typed(tmp_path: Path) -> None:
    section = {
        "interval_sec": 5,
        "max_entries": 100,
        "origin": "hub.example/log",
        "recosign_sec": 30,
        "witnesses": [WITNESS, {**WITNESS, "key": NoteKey("other", COSIGNATURE, KEY.public).text}],
        "memories": {
            "required": 2,
            "heads_file": str(tmp_path / "heads"),
            "urls": ["https://replica.example/veen"],
            "anchors": False,
        },
    }
    found = load(section, tmp_path).hub_log
    assert [witness.key.name for witness in found.witnesses] == ["witness.example/w", "other"]
    assert found.witnesses[0].key == KEY
    assert found.memories.heads_file == tmp_path / "heads"


WRONG: dict[str, tuple[object, str]] = {
    "interval 0": ({"interval_sec": 0}, "hub_log.interval_sec: 0 is not between 1 and"),
    "max_entries 0": ({"max_entries": 0}, "hub_log.max_entries: 0 is not between 1 and"),
    "recosign 0": ({"recosign_sec": 0}, "hub_log.recosign_sec: 0 is not between 1 and"),
    "unknown setting": ({"every": 1}, "hub_log.every: unknown setting; known are interval_sec, "),
    "origin with a space": ({"origin": "my hub"}, "hub_log.origin: 'my hub' is not a key name; use no space"),
    "origin with a plus": ({"origin": "a+b"}, "hub_log.origin: 'a+b' is not a key name"),
    "origin is empty": ({"origin": ""}, "hub_log.origin: '' is not a key name"),
    "witness without key": ({"witnesses": [{"url": "http://w"}]}, "hub_log.witnesses[0].key: missing"),
    "key is a number": (
        {"witnesses": [{**WITNESS, "key": 5}]},
        "hub_log.witnesses[0].key: must be a verifier key, <name>+<key id>+<base64>, not the number 5",
    ),
    "key is cut": (
        {"witnesses": [{**WITNESS, "key": KEY.text[:-4]}]},
        "hub_log.witnesses[0].key: verifier key (C2SP signed-note): want a public key of 32 bytes",
    ),
    "key of a log": (
        {"witnesses": [{**WITNESS, "key": HUB_VKEY}]},
        "is the key of a log; give the key of the witness, of type 4",
    ),
    "same witness twice": ({"witnesses": [WITNESS, WITNESS]}, "hub_log.witnesses: a witness is given twice"),
    "url without scheme": (
        {"witnesses": [{**WITNESS, "url": "witness.example"}]},
        "hub_log.witnesses.url: must be http://host[:port][/path]",
    ),
    "url with a query": (
        {"witnesses": [{**WITNESS, "url": "https://w/?a=b"}]},
        "[:port][/path] or https://host[:port][/path], without a query",
    ),
    "url with a password": (
        {"witnesses": [{**WITNESS, "url": "https://me:secret@w"}]},
        "remove user and password",
    ),
    "ca without https": (
        {"witnesses": [{**WITNESS, "url": "http://w", "ca": "ca.pem"}]},
        "hub_log.witnesses.ca: has no effect unless hub_log.witnesses.url begins with https://",
    ),
    "memory ca without https": (
        {"memories": {"urls": ["http://replica"], "ca": "ca.pem"}},
        "hub_log.memories.ca: has no effect unless one of hub_log.memories.urls begins with https://",
    ),
    "memory url is none": (
        {"memories": {"urls": ["replica"]}},
        "hub_log.memories.urls[0]: must be http://host[:port][/path]",
    ),
    "memory url twice": (
        {"memories": {"urls": ["http://r", "http://r"]}},
        "hub_log.memories.urls: an address is given twice",
    ),
    "heads file without folder": (
        {"memories": {"heads_file": "/no/such/folder/heads"}},
        "hub_log.memories.heads_file: folder /no/such/folder does not exist; mount its volume",
    ),
    "heads file is a folder": (
        {"memories": {"heads_file": "/"}},
        "hub_log.memories.heads_file: / is a folder; give a file in it",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_is_named(tmp_path: Path, name: str) -> None:
    section, message = WRONG[name]
    with pytest.raises(ConfigError) as raised:
        load(section, tmp_path)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_heads_file_in_the_data_directory_is_refused(tmp_path: Path) -> None:
    """It would be restored together with the directory, and would remember nothing."""
    (tmp_path / "data").mkdir()
    with pytest.raises(ConfigError, match="is in data_dir"):
        load({"memories": {"heads_file": str(tmp_path / "data" / "heads")}}, tmp_path)


@pytest.mark.parametrize("key", ["hub_log__witnesses", "hub_log__memories"])
def test_a_ca_file_that_is_none_keeps_the_hub_from_starting(
    start_hub: StartHub, tmp_path: Path, key: str
) -> None:
    (tmp_path / "ca.pem").write_text("not a certificate")
    ca = str(tmp_path / "ca.pem")
    value = [{**WITNESS, "ca": ca}] if key.endswith("witnesses") else {"urls": ["https://r"], "ca": ca}
    with pytest.raises(ConfigError, match=r"hub_log\.(witnesses|memories)\.ca: .*ca\.pem"):
        start_hub(**{key: value})
