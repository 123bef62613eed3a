"""Write a corpus of cases with the verdicts of ``veen verify``, for the page to be compared with.

Usage: python agreement OUT.json [--mutations N] [--seed N] [--evidence FOLDER]. ``tests/agreement.ts`` reads
the corpus. The evidence is made by a real hub, in a temporary folder or in FOLDER, from where the next run
takes it. The seed fixes the changes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import cases
import evidence
import folds
import queries
from verdicts import judge

from veen_cli.arguments import times

DEFAULT_MUTATIONS = 400


def held_evidence(root: Path) -> tuple[Path, bytes, str]:
    """Return the folder with the evidence, its hub_id and its policy; make the evidence if it is missing."""
    mark = root / "hub_id"
    if not mark.exists():
        root.mkdir(exist_ok=True)
        mark.write_text(evidence.make(root)[0].hex())
    return root, bytes.fromhex(mark.read_text()), (root / "policy.txt").read_text()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mutations", type=int, default=DEFAULT_MUTATIONS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evidence", type=Path)
    chosen = parser.parse_args()
    out = chosen.out.absolute()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        real = cases.evidence(*held_evidence((chosen.evidence or root).absolute()))
        made = list(cases.vectors())
        good = [case for case in made if not case.name.endswith("_fail") and case.trust is not None]
        made += real
        # Change real evidence more often than vectors: it is larger, and has more kinds in one case.
        asked = queries.results()
        results = [case for case, _ in asked]
        made += results
        made += queries.changed(asked, chosen.mutations // 2, chosen.seed)
        made += cases.of_each_file(good + real + results, chosen.mutations // 50, chosen.seed)
        made += cases.mutations(real * 3 + results + good, chosen.mutations, chosen.seed)
        now = times.now()
        for case in made:
            judge(case, root)
        os.chdir(out.parent)
    if missing := cases.undecided(made):
        raise SystemExit(f"the corpus lacks a case that holds, or one that fails, for: {', '.join(missing)}")
    corpus = {"now": now, "cases": [case.as_json() for case in made]}
    out.write_text(json.dumps(corpus | folds.as_json(chosen.mutations // 4, chosen.seed)))
    print(f"{len(made)} cases in {out}")


if __name__ == "__main__":
    main()
