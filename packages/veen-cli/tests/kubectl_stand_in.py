# ruff: noqa: T201 - its output is print
"""A stand-in for kubectl that keeps objects in a JSON file: no cluster runs where these tests run.

It takes exactly the calls that `veen kube` makes, and fails on all others. Hubs are ready at once, and Jobs
pass unless there is a file ``$KUBECTL_STATE.job``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

SINGULAR = {
    "namespaces": "namespace",
    "deployments": "deployment",
    "statefulsets": "statefulset",
    "jobs": "job",
    "pods": "pod",
}


def use_stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on the PATH as kubectl; return the file that holds its objects."""
    programs = folder / ".kubectl"
    programs.mkdir()
    program = programs / "kubectl"
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECTL_STATE", str(programs / "objects.json"))
    return programs / "objects.json"


def main(words: list[str]) -> int:  # noqa: PLR0912 - one case for each call
    state = Path(os.environ["KUBECTL_STATE"])
    objects: dict[str, Any] = json.loads(state.read_text()) if state.exists() else {}
    flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
    verb, *rest = [word for word in words if not word.startswith("--")]
    namespace = flags.get("namespace", "")
    match verb, rest:
        case (("apply" | "create"), []):
            given = json.load(sys.stdin)
            for each in given.get("items", [given]):
                key = key_of(each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
                if verb == "create" and key in objects:
                    return fail(f"Error from server (AlreadyExists): {key}")
                if each["kind"] in ("Deployment", "StatefulSet"):
                    each["status"] = {"readyReplicas": 1}
                if each["kind"] == "Job":
                    passes = not Path(f"{state}.job").exists()
                    each["status"] = {"succeeded": 1} if passes else {"failed": 1}
                objects[key] = each
                print(f"{each['kind'].lower()}/{each['metadata']['name']} configured")
        case "get", [kind, name]:
            found = objects.get(key_of(kind, namespace if kind != "namespace" else "", name))
            print(json.dumps(found) if found is not None else "")
        case "get", [kinds]:
            wanted = {SINGULAR[each] for each in kinds.split(",")}
            selector = dict(pair.split("=") for pair in flags["selector"].split(","))
            items = [
                each
                for each in objects.values()
                if each["kind"].lower() in wanted and selector.items() <= each["metadata"]["labels"].items()
            ]
            print(json.dumps({"items": items}))
        case "patch", [kind, name]:
            each = objects[key_of(kind, namespace, name)]
            if flags["type"] == "merge":
                each["data"] |= json.load(sys.stdin)["data"]
            else:
                for operation in json.loads(flags["patch"]):
                    put(each, operation["path"].split("/")[1:], operation["value"])
        case "rollout", ["status", workload]:
            kind, _, name = workload.partition("/")
            return 0 if key_of(kind, namespace, name) in objects else fail("Error from server (NotFound)")
        case "delete", ["namespace", name]:
            objects = {key: each for key, each in objects.items() if key.split("|")[1] != name}
            objects.pop(key_of("namespace", "", name), None)
        case "delete", ["job", name]:
            objects.pop(key_of("job", namespace, name), None)
        case _:
            return fail(f"error: unknown call {words}")
    state.write_text(json.dumps(objects))
    return 0


def key_of(kind: str, namespace: str, name: str) -> str:
    return f"{kind.lower()}|{namespace}|{name}"


def put(target: Any, path: list[str], value: object) -> None:
    *parents, last = (part.replace("~1", "/") for part in path)
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    target[last] = value


def fail(message: str) -> int:
    print(message, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
