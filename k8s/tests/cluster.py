"""Rendered manifests as real containers: one podman network, many namespaces.

What is real: images, users, capabilities, read-only roots, limits, mounts of ConfigMaps, Secrets and volumes,
probes, signals, exit codes, DNS names of Services, and NetworkPolicies as packet filters. What is not:
scheduler, controllers, RBAC, rollouts. A pod is one container; only a test restarts it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Final

from packet_filter import Endpoint, enforced, rules
from podman import podman

Object = dict[str, Any]
READY_SEC: Final = 60.0
"""Longest time until a pod is ready."""
MAC: Final = "02:42:0a:59:00:f6"
"""The address in the network of the one pod whose IP is fixed."""
POLL_SEC: Final = 0.02
UID: Final = 10_001
UNVERIFIED: Final = ssl._create_unverified_context()
"""The kubelet does not verify the certificate of a probe either."""


class NotReadyError(AssertionError):
    """A pod did not become ready in time; the message has its log."""


@dataclass
class Pod:
    """One container of a workload."""

    name: str
    ip: str
    template: Object

    def logs(self) -> str:
        done = podman("logs", self.name)
        return done.stdout + done.stderr

    def events(self) -> list[dict[str, Any]]:
        """Return the pod's log; a line that is not JSON raises, because spec-4 §10.3 allows none."""
        return [json.loads(line) for line in self.logs().splitlines()]

    def probe(self, which: str) -> int:
        """Return the HTTP status of a probe, or 0 if nothing answers."""
        (container,) = self.template["spec"]["containers"]
        get = container[which]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        scheme = get.get("scheme", "HTTP").lower()
        url = f"{scheme}://{self.ip}:{ports.get(get['port'], get['port'])}{get['path']}"
        try:
            with urllib.request.urlopen(url, timeout=5, context=UNVERIFIED) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as exc:
            exc.close()
            return exc.code
        except OSError:
            return 0

    def wait(self, which: str = "readinessProbe", status: int = 200) -> float:
        """Wait until a probe has this status; return the seconds it took."""
        started = time.monotonic()
        while self.probe(which) != status:
            if time.monotonic() - started > READY_SEC:
                raise NotReadyError(f"{self.name}: {which} is {self.probe(which)}:\n{self.logs()[-2_000:]}")
            time.sleep(POLL_SEC)
        return time.monotonic() - started

    def stop(self) -> int:
        """Send SIGTERM, wait for the grace period, and return the exit code."""
        podman("stop", f"--time={self.template['spec'].get('terminationGracePeriodSeconds', 30)}", self.name)
        return self.exit_code()

    def seconds_until_ready(self) -> float:
        """Wait until the pod is ready; return the seconds since the container runtime made its process."""
        self.wait()
        ready = time.clock_gettime(time.CLOCK_BOOTTIME)
        pid = podman("inspect", self.name, "--format={{.State.Pid}}").stdout.strip()
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return ready - int(after_name[19]) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        podman("kill", "--signal=KILL", self.name)
        podman("wait", self.name)

    def exit_code(self) -> int:
        return int(podman("wait", self.name).stdout.strip())

    def remove(self) -> None:
        podman("rm", "--force", "--time=0", self.name, check=False)


@dataclass
class Namespace:
    """The objects of one namespace, and the pods that run."""

    name: str
    cluster: Cluster
    folder: Path
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)

    def apply(self, objects: Sequence[Object]) -> None:
        """Store objects; pods start when ``start`` asks for them."""
        for each in objects:
            self.objects[each["kind"], each["metadata"]["name"]] = each

    def start(
        self, kind: str, name: str, *, suffix: str = "", ready: bool = True, ip: str | None = None
    ) -> Pod:
        """Start the pod of a workload, in place of an earlier one of the same name and suffix.

        ``ip`` is a fixed address, for clients outside the network: they have no names of Services.
        """
        template = self.objects[kind, name]["spec"]["template"]
        pod_name = f"{self.name}.{name}{suffix}"
        if pod_name in self.pods:
            self.pods[pod_name].remove()
        self._initialize(pod_name, template)
        fixed = [] if ip is None else [f"--ip={ip}", f"--mac-address={MAC}"]  # nobody's neighbour table ages
        podman("run", "--detach", *fixed, *self._options(pod_name, template), *self._command(template))
        container = self._container(pod_name)
        shown = podman(
            "inspect", container, "--format={{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        )
        pod = self.pods[pod_name] = Pod(container, shown.stdout.strip(), template)
        if ready:
            pod.wait()
        return pod

    def _container(self, pod_name: str) -> str:
        """Return the name of a pod's container: two runs at the same time have different networks."""
        return f"{self.network}.{pod_name}"

    def _initialize(self, pod_name: str, template: Object) -> None:
        """Run the init containers of a pod, one after the other; they share its volumes."""
        for each in template["spec"].get("initContainers", []):
            alone = {**template, "spec": {**template["spec"], "containers": [each]}}
            options = self._options(pod_name, alone)[1:]  # the name belongs to the pod
            podman("run", "--rm", *options, *self._command(alone))

    def run_job(self, name: str, *more: str, kind: str = "Job", timeout: float = 300.0) -> tuple[int, str]:
        """Run a Job, or the next one of a CronJob, to its end; return its exit code and its output.

        ``more`` are further arguments of its program.
        """
        spec = self.objects[kind, name]["spec"]
        template = (spec if kind == "Job" else spec["jobTemplate"]["spec"])["template"]
        options = self._options(f"{self.name}.{name}", template)
        command = [*self._command(template), *more]
        done = podman("run", "--rm", *options, *command, check=False, timeout=timeout)
        return done.returncode, done.stdout + done.stderr

    def call(self, image: str, code: str, labels: Mapping[str, str]) -> str:
        """Run Python code in a pod with these labels, under the network policies; return its output."""
        ip = self.cluster.free_ip()
        pods = [*self.cluster.endpoints(), Endpoint(self.name, labels, ip)]
        command = ["--entrypoint=python3", image, "-c", code]
        with enforced(rules(self.cluster.policies(), pods, self.cluster.namespace_labels())):
            done = podman("run", "--rm", f"--network={self.network}", f"--ip={ip}", *command, check=False)
        return (done.stdout + done.stderr).strip()

    def volume(self, claim: str) -> Path:
        """Return the folder behind a PersistentVolumeClaim."""
        folder = self.folder / f"pvc-{claim}"
        if not folder.exists():
            folder.mkdir(parents=True)
            os.chown(folder, 0, UID)
            folder.chmod(0o2775)
        return folder

    def report(self, job: str, name: str) -> str:
        """Return a file that a Job has written to its volume ``reports``."""
        return (self.folder / "empty" / f"{self.name}.{job}-reports" / name).read_text(encoding="utf-8")

    def delete(self) -> None:
        """Delete the namespace with everything in it."""
        for pod in self.pods.values():
            pod.remove()
        self.pods.clear()
        self.objects.clear()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def network(self) -> str:
        return self.cluster.network

    # --- from a pod template to podman's flags

    def _options(self, name: str, template: Object) -> list[str]:
        spec, labels = template["spec"], template["metadata"]["labels"]
        (container,) = spec["containers"]
        security = {**spec["securityContext"], **container["securityContext"]}
        assert security["runAsNonRoot"]
        flags = [
            f"--name={self._container(name)}",
            f"--hostname={name.partition('.')[2]}",
            f"--user={security['runAsUser']}:{security['runAsGroup']}",
            f"--network={self.network}",
            f"--dns-search={self.name}.svc.cluster.local",  # a short name is a Service of the own namespace
            "--read-only-tmpfs=false",
            *[f"--label={key}={value}" for key, value in labels.items()],
            f"--label=veen.namespace={self.name}",
            *[f"--cap-drop={each}" for each in security["capabilities"]["drop"]],
        ]
        flags += ["--read-only"] if security["readOnlyRootFilesystem"] else []
        flags += [] if security["allowPrivilegeEscalation"] else ["--security-opt=no-new-privileges"]
        flags += [
            f"--memory={container['resources']['limits']['memory'].replace('Mi', 'm').replace('Gi', 'g')}"
        ]
        flags += [f"--env={each['name']}={self._value(each, template)}" for each in container.get("env", [])]
        flags += [f"--network-alias={alias}" for alias in self._aliases(labels)]
        return flags + self._mounts(name, spec, container)

    def _aliases(self, labels: Mapping[str, str]) -> list[str]:
        found = []
        for (kind, service), each in self.objects.items():
            if kind == "Service" and each["spec"]["selector"].items() <= labels.items():
                full = f"{service}.{self.name}"
                found += [full, f"{full}.svc", f"{full}.svc.cluster.local"]
        return found

    def _value(self, entry: Object, template: Object) -> str:
        if "value" in entry:
            return str(entry["value"])
        source = entry["valueFrom"]
        if "fieldRef" in source:
            path = source["fieldRef"]["fieldPath"]
            return str(template["metadata"]["labels"][path.partition("'")[2].rstrip("']")])
        reference = source["configMapKeyRef"]
        return str(self.objects["ConfigMap", reference["name"]]["data"][reference["key"]])

    def _mounts(self, name: str, spec: Object, container: Object) -> list[str]:
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        flags = []
        for mount in container["volumeMounts"]:
            volume, path = volumes[mount["name"]], mount["mountPath"]
            if "persistentVolumeClaim" in volume:
                folder = self.volume(volume["persistentVolumeClaim"]["claimName"]) / mount.get("subPath", "")
                if not folder.exists():
                    folder.mkdir()
                    os.chown(folder, 0, UID)
                    folder.chmod(0o2775)
                flags.append(f"--volume={folder}:{path}")
            elif volume.get("emptyDir", {}).get("medium") == "Memory" and not _is_shared(spec, volume):
                flags.append(f"--tmpfs={path}:rw,nosuid,nodev,mode=1777")
            elif "emptyDir" in volume:
                folder = self.folder / "empty" / f"{name}-{mount['name']}"
                if not _is_shared(spec, volume):
                    shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(parents=True, exist_ok=True)
                folder.chmod(0o2777)
                flags.append(f"--volume={folder}:{path}")
            else:
                folder = self._projected(volume)
                for other in container["volumeMounts"]:  # as the kubelet makes nested mount points
                    if other["mountPath"].startswith(f"{path}/"):
                        (folder / other["mountPath"].removeprefix(f"{path}/")).mkdir(exist_ok=True)
                flags.append(f"--volume={folder}:{path}:ro")
        return flags

    def _projected(self, volume: Object) -> Path:
        """Write a ConfigMap or Secret as the kubelet does: owned by root, readable by the pod's group."""
        if "configMap" in volume:
            source, mode = self.objects["ConfigMap", volume["configMap"]["name"]], 0o444
        else:
            source, mode = (
                self.objects["Secret", volume["secret"]["secretName"]],
                volume["secret"]["defaultMode"],
            )
        folder = self.folder / f"{source['kind']}-{source['metadata']['name']}-{volume['name']}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        items = volume.get("secret", {}).get("items")
        wanted = (
            {each["key"]: each["path"] for each in items} if items else {key: key for key in source["data"]}
        )
        for key, name in wanted.items():
            path, value = folder / name, source["data"][key]
            path.write_bytes(base64.b64decode(value) if source["kind"] == "Secret" else value.encode())
            os.chown(path, 0, UID)
            path.chmod(mode)
        return folder

    def _command(self, template: Object) -> list[str]:
        (container,) = template["spec"]["containers"]
        return [
            f"--entrypoint={json.dumps(container['command'])}",
            container["image"],
            *[self._expand(each, template) for each in container.get("args", [])],
        ]

    def _expand(self, argument: str, template: Object) -> str:
        (container,) = template["spec"]["containers"]
        for entry in container.get("env", []):
            argument = argument.replace(f"$({entry['name']})", self._value(entry, template))
        return argument


def failures(output: str) -> str:
    """Return the failed checks of a self-test's output, or the end of the output if it names none."""
    return "\n".join(line for line in output.splitlines() if "check_failed" in line) or output[-2_000:]


def _is_shared(spec: Object, volume: Object) -> bool:
    """Return whether an init container fills a volume for the pod's other containers."""
    mounted = [mount["name"] for each in spec.get("initContainers", []) for mount in each["volumeMounts"]]
    return volume["name"] in mounted


@dataclass
class Cluster:
    """A podman network, and the namespaces in it."""

    network: str
    folder: Path
    namespaces: dict[str, Namespace] = field(default_factory=dict)

    def create(self) -> None:
        podman("network", "create", "--label=veen.test=1", self.network)

    def namespace(self, name: str) -> Namespace:
        if name not in self.namespaces:
            folder = self.folder / name
            folder.mkdir(parents=True)
            self.namespaces[name] = Namespace(name, self, folder)
        return self.namespaces[name]

    def endpoints(self) -> list[Endpoint]:
        """Return the pods that run."""
        return [
            Endpoint(namespace.name, pod.template["metadata"]["labels"], pod.ip)
            for namespace in self.namespaces.values()
            for pod in namespace.pods.values()
        ]

    def policies(self) -> list[Object]:
        return [
            each
            for namespace in self.namespaces.values()
            for (kind, _name), each in namespace.objects.items()
            if kind == "NetworkPolicy"
        ]

    def namespace_labels(self) -> dict[str, dict[str, str]]:
        found = {}
        for namespace in self.namespaces.values():
            if (each := namespace.objects.get(("Namespace", namespace.name))) is not None:
                found[namespace.name] = each["metadata"]["labels"]
        return found

    def free_ip(self) -> str:
        """Return an address at the end of the network, where podman gives none out by itself."""
        (network,) = json.loads(podman("network", "inspect", self.network).stdout)
        return str(ip_network(network["subnets"][0]["subnet"])[-10])

    def delete(self) -> None:
        for namespace in self.namespaces.values():
            namespace.delete()
        podman("network", "rm", "--force", self.network, check=False)
