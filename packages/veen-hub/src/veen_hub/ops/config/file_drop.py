"""The section ``file`` of hub.yaml: drop folders for links that carry files one way (DR0, ADR 0031)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from veen_hub.ops.config.setting_error import SettingError


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """Drop folders: requests arrive as files in one folder, replies leave as files in another (DR0)."""

    inbox: Path | None = None
    """Folder of requests; the hub removes a request when its reply is durable."""
    outbox: Path | None = None
    """Folder of replies, and of `status.reply`; the link, or the client, takes them away."""
    poll_ms: int = 500
    """Milliseconds between two scans of the inbox."""
    status_sec: int = 60
    """Seconds after which `status.reply` is written again."""
    max_senders: int = 1_024
    """Clients that may send; requests of further ones stay in the inbox."""
    without_certificates: bool = False
    """Serve readers without a certificate although `tls.client_ca` is set: the folders decide who writes."""

    def __post_init__(self) -> None:
        for name in ("inbox", "outbox"):
            folder = getattr(self, name)
            if folder is None:
                raise SettingError(f"file.{name}", "missing; give a folder")
            if not folder.is_dir():
                raise SettingError(f"file.{name}", f"folder {folder} does not exist")
        if self.inbox is not None and self.outbox is not None and self.inbox.samefile(self.outbox):
            raise SettingError("file.outbox", "is the inbox; give another folder")
