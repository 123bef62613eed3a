"""The names of streams that an identity has used, per hub: ``known_streams.json`` in its folder.

A hub knows labels only, and the client's state is filed by label, so that neither reveals the names. This
file is a convenience for ``veen streams``: if it is lost, only the names are missing.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from veen_cli.identity.identity_folder import Folder
from veen_core.errors import StateError
from veen_core.ids import HubId
from veen_hub.client import replace_file


def _file(folder: Folder) -> Path:
    return folder.root / "known_streams.json"


def known_streams(folder: Folder) -> dict[str, list[str]]:
    """Return the names of streams by hub_id in hex; empty if the file is missing or damaged."""
    try:
        content = json.loads(_file(folder).read_text(encoding="utf-8"))
        return {str(hub): sorted({str(name) for name in names}) for hub, names in content.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def remember_stream(folder: Folder, hub: HubId, name: str) -> None:
    """Add a name; a folder that cannot be written is not an error here."""
    known = known_streams(folder)
    if name in known.get(hub.hex(), ()):
        return
    known[hub.hex()] = sorted({*known.get(hub.hex(), ()), name})
    text = json.dumps(known, indent=1, ensure_ascii=False)
    with contextlib.suppress(StateError):
        replace_file(_file(folder), f"{text}\n".encode(), durable=False)
