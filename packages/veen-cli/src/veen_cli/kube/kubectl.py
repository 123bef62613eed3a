"""kubectl as a child process: the only way in which ``veen kube`` reaches a cluster."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from veen_cli.frame.exits import CommandFailed, Exit
from veen_cli.kube.kustomize import Object


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with a context of the user's kubeconfig; None is the current one."""

    context: str | None

    def run(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return its output; an error is raised with kubectl's own last line."""
        done = self._run(arguments, stdin)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["no output"])[-1]
            raise CommandFailed(
                f"kubectl {arguments[0]} failed: {last}",
                Exit.NETWORK if "connect" in last.lower() else Exit.REFUSED,
                "check the context with `kubectl config current-context`, and your rights in the cluster",
            )
        return done.stdout

    def _run(self, arguments: Sequence[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
        program = shutil.which("kubectl")
        if program is None:
            raise CommandFailed("kubectl is not on PATH", Exit.USAGE, "install kubectl")
        context = [] if self.context is None else [f"--context={self.context}"]
        return subprocess.run(  # noqa: S603 - kubectl, with arguments that this package makes
            [program, *context, *arguments], input=stdin, capture_output=True, text=True, check=False
        )

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return an object, or None if the cluster does not have it."""
        where = [] if namespace is None else [f"--namespace={namespace}"]
        text = self.run("get", kind, name, *where, "--ignore-not-found", "--output=json")
        found: Object | None = json.loads(text) if text.strip() else None
        return found

    def select(self, kinds: str, namespace: str | None, selector: str) -> list[Object]:
        """Return the objects with these labels, in one namespace or in all."""
        where = "--all-namespaces" if namespace is None else f"--namespace={namespace}"
        found: list[Object] = json.loads(
            self.run("get", kinds, where, f"--selector={selector}", "--output=json")
        )["items"]
        return found

    def apply(self, objects: Sequence[Object]) -> list[str]:
        """Apply objects; return kubectl's line for each."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        return self.run("apply", "--filename=-", stdin=json.dumps(listed)).splitlines()

    def create(self, each: Object) -> None:
        """Create an object that must not exist yet: a Secret is never replaced."""
        self.run("create", "--filename=-", stdin=json.dumps(each))

    def merge(self, kind: str, name: str, namespace: str, change: Object) -> None:
        """Merge a change into an object; its content is not visible in the list of processes."""
        where = f"--namespace={namespace}"
        self.run(
            "patch", kind, name, where, "--type=merge", "--patch-file=/dev/stdin", stdin=json.dumps(change)
        )
