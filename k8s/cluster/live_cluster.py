"""The cluster of a test run: kubectl, `veen kube`, and Jobs of our own images in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from node import Node

from veen_cli.kube.kubectl import Kubectl

Object = dict[str, Any]
WAIT_SEC: Final = 180.0
POLL_SEC: Final = 0.3
UID: Final = 10_001
ASK: Final = """
import sys, urllib.error, urllib.request
headers = {"Accept": "application/json"}
request = urllib.request.Request("http://127.0.0.1:8080" + sys.argv[1], headers=headers)
try:
    print(urllib.request.urlopen(request, timeout=10).read().decode())
except urllib.error.HTTPError:
    pass
"""


@dataclass(frozen=True)
class LiveCluster:
    """A cluster that KUBECONFIG names, with our images."""

    version: str
    """Version of the API server."""
    image_prefix: str
    tag: str
    next_tag: str | None
    """Tag of a second version for the upgrade; None if the images have only one."""
    node: Node | None
    """The node, if the test run has made the cluster."""
    kubectl: Kubectl = field(default_factory=lambda: Kubectl(None))

    def image(self, name: str) -> str:
        return f"{self.image_prefix}{name}:{self.tag}"

    def veen(self, *words: str, code: int = 0) -> Any:
        """Run `veen kube` and return its JSON answer; the exit code must be as given."""
        program = Path(sys.executable).with_name("veen")
        done = subprocess.run(
            [program, "kube", *words, "--json"], capture_output=True, text=True, check=False, timeout=900
        )
        assert done.returncode == code, (
            f"veen kube {' '.join(words)}: {done.stdout[-500:]}{done.stderr[-3_000:]}\n{self._failed_jobs()}"
        )
        return json.loads(done.stdout or done.stderr)

    def _failed_jobs(self) -> str:
        """Return the ends of the logs of Jobs that have failed."""
        jobs = self.kubectl.select("jobs", None, "app.kubernetes.io/part-of=veen")
        failed = [each["metadata"] for each in jobs if each.get("status", {}).get("failed")]
        return "\n".join(self.logs(each["namespace"], f"job/{each['name']}")[-3_000:] for each in failed)

    def apply(self, *words: str, tag: str | None = None, code: int = 0) -> Any:
        images = (f"--image-prefix={self.image_prefix}", f"--tag={tag or self.tag}")
        return self.veen("apply", *words, *images, code=code)

    def get(self, kind: str, name: str, namespace: str | None) -> Object:
        found = self.kubectl.get(kind, name, namespace)
        assert found is not None, f"there is no {kind} {name} in {namespace}"
        return found

    def pods(self, namespace: str, selector: str) -> list[Object]:
        """Return the pods with these labels that are not being deleted."""
        found = self.kubectl.select("pods", namespace, selector)
        return [each for each in found if "deletionTimestamp" not in each["metadata"]]

    def hub(self, namespace: str) -> Object:
        (pod,) = self.pods(namespace, "app.kubernetes.io/component=hub")
        return pod

    def ask(self, namespace: str, path: str) -> str:
        """Ask the hub of a namespace, from inside of its pod; return "" if it answers with an error."""
        name = self.hub(namespace)["metadata"]["name"]
        where = (f"--namespace={namespace}", name, "--container=hub")
        return self.kubectl.run("exec", *where, "--", "python3", "-c", ASK, path).strip()

    def status(self, namespace: str) -> Object:
        found: Object = json.loads(self.ask(namespace, "/v1/status"))
        return found

    def checkpoint(self, namespace: str) -> str:
        """Return origin, size and root of the newest hub checkpoint."""
        return self.ask(namespace, "/log/checkpoint").partition("\n\n")[0]

    def logs(self, namespace: str, name: str, *more: str) -> str:
        return self.kubectl.run("logs", name, f"--namespace={namespace}", "--tail=-1", *more)

    def scale(self, namespace: str, deployment: str, replicas: int) -> None:
        where = f"--namespace={namespace}"
        self.kubectl.run("scale", f"deployment/{deployment}", where, f"--replicas={replicas}")
        if replicas == 0:
            selector = "app.kubernetes.io/component=hub"
            wait_until("the pod has ended", lambda: not self.kubectl.select("pods", namespace, selector))

    def wait_for_rollout(self, namespace: str, workload: str) -> None:
        self.kubectl.run(
            "rollout", "status", workload, f"--namespace={namespace}", f"--timeout={WAIT_SEC:.0f}s"
        )

    def run_job(self, job: Object) -> tuple[int, str]:
        """Run a Job to its end, in place of an earlier one; return the exit code of its pod, and its log."""
        name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
        where = f"--namespace={namespace}"
        self.kubectl.run("delete", "job", name, where, "--ignore-not-found", "--wait=true")
        self.kubectl.apply([job])
        return self.end_of_job(namespace, name)

    def end_of_job(self, namespace: str, name: str) -> tuple[int, str]:
        """Wait for the end of a Job's pod; return its exit code and its log."""

        # Not by name: pods of an earlier Job of this name may still be there.
        own = f"controller-uid={self.get('job', name, namespace)['metadata']['uid']}"

        def ended() -> list[Object]:
            states = [
                container.get("state", {}).get("terminated")
                for pod in self.kubectl.select("pods", namespace, own)
                for container in pod.get("status", {}).get("containerStatuses", [])
            ]
            return [state for state in states if state]

        wait_until(
            f"the Job {name} has ended",
            lambda: bool(ended()),
            lambda: self.why(namespace, own),
        )
        return int(ended()[0]["exitCode"]), self.logs(namespace, f"job/{name}")

    def why(self, namespace: str, selector: str) -> str:
        """Say why pods do not run, in Kubernetes' words."""
        found = [
            json.dumps(pod.get("status", {})) for pod in self.kubectl.select("pods", namespace, selector)
        ]
        return "\n".join(found)[-3_000:]

    def job(
        self,
        namespace: str,
        name: str,
        image: str,
        script: str,
        *,
        secrets: Mapping[str, str] | None = None,
        claims: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Object:
        """Return a Job as spec-4 §7.2 describes it: ``script`` works in /work, Secrets are under /secrets.

        ``secrets`` and ``claims`` name the objects to mount by their path.
        """
        mounts = [{"name": "work", "mountPath": "/work"}, {"name": "tmp", "mountPath": "/tmp"}]
        volumes: list[Object] = [{"name": "work", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
        for number, (path, secret) in enumerate((secrets or {}).items()):
            mounts.append({"name": f"secret-{number}", "mountPath": path})
            volumes.append(
                {"name": f"secret-{number}", "secret": {"secretName": secret, "defaultMode": 0o440}}
            )
        for number, (path, claim) in enumerate((claims or {}).items()):
            mounts.append({"name": f"claim-{number}", "mountPath": path})
            volumes.append({"name": f"claim-{number}", "persistentVolumeClaim": {"claimName": claim}})
        allowed = {
            "app.kubernetes.io/part-of": "veen",
            "app.kubernetes.io/component": "cli",
            **(labels or {}),
        }
        container = {
            "name": "cli",
            "image": self.image(image),
            "command": ["sh", "-ec", script],
            "workingDir": "/work",
            "env": [{"name": "HOME", "value": "/work"}],
            "volumeMounts": mounts,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
        }
        specification = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": UID,
                "runAsGroup": UID,
                "fsGroup": UID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": volumes,
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": namespace, "labels": allowed},
            "spec": {"backoffLimit": 0, "template": {"metadata": {"labels": allowed}, "spec": specification}},
        }

    def run(self, job: Object) -> str:
        """Run a Job that must pass; return its log."""
        code, log = self.run_job(job)
        assert code == 0, f"the Job {job['metadata']['name']} ended with {code}:\n{log[-3_000:]}"
        return log


def wait_until(
    what: str, holds: Callable[[], bool], why: Callable[[], str] = lambda: "", timeout: float = WAIT_SEC
) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < deadline, f"not after {timeout:.0f} s: {what}\n{why()}"
        time.sleep(POLL_SEC)


def older_kubectl(folder: Path, version: str) -> None:
    """For a cluster before 1.21, put a kubectl first on the PATH that speaks the earlier versions."""
    if tuple(map(int, version.removeprefix("v").split(".")[:2])) >= (1, 21):
        return
    folder.mkdir()
    (folder / ".kubectl-for-1.20").touch()
    (folder / "kubectl").symlink_to(Path(__file__).with_name("kubectl-for-1.20"))
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def version_of(words: Sequence[str] = ("kubectl", "version", "--output=json")) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)["serverVersion"]["gitVersion"])
