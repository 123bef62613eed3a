"""Primaries and replicas for tests: real processes, compared byte by byte."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from veen_core import cbor
from veen_core.api import ReceiptRequest, ReceiptResponse, SubmitResponse
from veen_core.ids import HubId, Label, StreamSeq
from veen_core.receipt import Receipt
from veen_core.status import HandoverRequest
from veen_storage.fsck import fsck

from .people import Writer, envelope
from .serving import CBOR_SEQ, Calls, until


def files_of(root: Path, *folders: str) -> dict[str, bytes]:
    return {
        f"{folder}/{path.relative_to(root / folder)}": path.read_bytes()
        for folder in folders
        for path in sorted((root / folder).rglob("*"))
        if path.is_file()
    }


def assert_same_log(primary: Path, replica: Path) -> None:
    """Both directories are closed: everything is applied when they were opened and closed again."""
    mine, theirs = (files_of(root, "log", "attachments") for root in (replica, primary))
    assert mine.keys() == theirs.keys()
    assert mine == theirs
    for name in ("hublog/entries", "hublog/checkpoint", "checkpoint-binding.cbor", "registry.cbor"):
        assert (replica / name).read_bytes() == (primary / name).read_bytes(), name


def assert_sound(root: Path) -> None:
    report = fsck(root)
    assert report.faults == [], str(report)


def send(hub: Calls, writer: Writer, count: int) -> list[Receipt]:
    """``count`` messages in one request."""
    body = b"".join(envelope(writer.next()) for _ in range(count))
    answer = hub.call("POST", "/v1/submit", body, {"Content-Type": CBOR_SEQ})
    assert answer.status == 200, answer
    return [SubmitResponse.decode(item).receipt for item in cbor.split_sequence(answer.body)]


def head(hub: Calls, label: Label) -> int:
    """``stream_seq`` of the label's newest entry; 0 if it has none."""
    answer = hub.post("/v1/receipt", ReceiptRequest(label=label, stream_seq=StreamSeq(0)))
    return 0 if answer.status == 404 else answer.read(ReceiptResponse).receipt.stream_seq


def published_size(hub: Calls) -> int:
    answer = hub.get("/log/checkpoint")
    return int(answer.body.split(b"\n")[1]) if answer.status == 200 else 0


def catch_up(primary: Calls, replica: Calls, *labels: Label) -> None:
    """Wait until the replica has what the primary has now."""
    for label in labels:
        wanted = head(primary, label)
        until(lambda label=label, wanted=wanted: head(replica, label) >= wanted, f"the replica has {wanted}")  # type: ignore[misc]


def hand_over(hub: Calls, new_hub: HubId, url: str = "", later: int = 0) -> bytes:
    """The admin's request, and the record; a repeated request must be signed at another second."""
    request = HandoverRequest(new_hub=new_hub, url=url).encode()
    answer = hub.admin("/tooling/handover", request, at=hub.status().hub_ts + later)
    assert answer.status == 200, answer
    return answer.body


def ready(hub: Calls) -> str | None:
    """Why it is not ready, or None."""
    why = json.loads(hub.get("/readyz").body).get("why")
    return str(why) if why is not None else None


def refusal_to_start(root: Path, *flags: str) -> str:
    """What a hub says that does not start."""
    command = [sys.executable, "-m", "veen_hub.main", f"--data-dir={root}", "--port=0", *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 1, ended
    return ended.stderr
