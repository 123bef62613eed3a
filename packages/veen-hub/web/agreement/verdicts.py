"""The verdicts of ``veen verify`` on a case."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import cases

from veen_cli.evidence.verify import TrustOptions, _verify_files


def judge(case: cases.Case, root: Path) -> None:
    """Ask ``veen verify``."""
    folder = Path(tempfile.mkdtemp(dir=root))
    for name, content in case.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    policy = None
    if case.policy is not None:
        policy = folder / ".policy"
        policy.write_text(case.policy)
    os.chdir(folder)
    trust = TrustOptions(
        trust=case.trust.hex() if case.trust is not None else None,
        client=None,
        witnesses=str(policy) if policy is not None else None,
    )
    names = dict.fromkeys(name.partition("/")[0] for name in case.files)
    for made in _verify_files(list(names), trust, None):
        case.expect.append(
            {
                "file": made.where,
                "kind": made.what,
                "holds": made.holds,
                "why": made.why,
                "steps": list(made.steps),
                "complete": made.complete,
            }
        )
