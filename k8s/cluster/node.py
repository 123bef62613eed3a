"""A Kubernetes cluster of one node on this machine, from Debian's packages, for as long as a program runs.

    k8s/cluster/node.py --folder .tools/cluster -- kubectl get nodes

1. ``make-kubernetes`` has filled the folder: Kubernetes 1.20.2 and the node's file system.
2. ``start-node`` runs in namespaces of its own (pid, mount, network, host name, IPC); a pair of network
   interfaces connects it with this machine, and nothing connects it with other machines.
3. The program gets ``KUBECONFIG``.
4. Everything ends with process 1 of the node. Then its cgroups and files are removed, and the settings of the
   machine that a kubelet writes are compared with what they were, and restored if they differ.

Real: API server with admission and RBAC, controllers, scheduler, kubelet, containerd, Services and their
names, volumes. Network policies are enforced by ``policy_enforcer``, not by a network plugin. Not there: what
Kubernetes 1.20 does not know.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from certificates import write_certificates
from policy_enforcer import PolicyEnforcer

HERE: Final = Path(__file__).resolve().parent
HOST_SETTINGS: Final = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
)
"""Settings in /proc/sys that a kubelet writes; those of ``net/`` are in the node's own network namespace."""
CGROUPS: Final = Path("/sys/fs/cgroup")
START_SEC: Final = 180.0
POLL_SEC: Final = 0.3
VOLUMES: Final = 64
"""Volumes that claims can bind to."""
PAUSE: Final = "localhost/pause:1"


class NodeError(Exception):
    """The node does not start; the message has the end of the log that says why."""


class Node:
    """One node, started by ``running``."""

    def __init__(self, packages: Path, state: Path) -> None:
        self.packages, self.state = packages, state
        self.id = secrets.token_hex(3)
        subnet = f"10.213.{secrets.randbelow(256)}"
        self.host_ip, self.ip = f"{subnet}.1", f"{subnet}.2"
        self.cgroup = f"veen-{self.id}"
        self.kubeconfig = state / "kubeconfig"
        self._outer: subprocess.Popen[bytes] | None = None
        self._ended = threading.Event()
        self._policies = PolicyEnforcer(self.kubectl, self.inside)

    # --- start

    def start(self) -> None:
        for name in ("upper", "work", "root", "containerd", "kubelet", "volumes"):
            (self.state / name).mkdir()
        for name in ("logs", "dns", "pki"):
            (self.state / "cluster" / name).mkdir(parents=True)
        (self.state / "cluster" / "dns" / "hosts").touch()
        self._write_settings()
        self._make_cgroups()
        # It ends with this process, and the node with it.
        command = [
            "setpriv",
            "--pdeathsig=KILL",
            "unshare",
            "--mount",
            "--propagation=private",
            "--net",
            "--pid",
        ]
        command += ["--uts", "--ipc", "--fork", "--kill-child=KILL", HERE / "start-node"]
        environment = {
            "PATH": os.environ["PATH"],
            "STATE": self.state,
            "NODE_ROOT": self.packages / "node",
            "KUBERNETES": self.packages / "kubernetes",
            "NODE_IP": self.ip,
            "HOST_IP": self.host_ip,
        }
        with (self.state / "cluster" / "logs" / "node.log").open("wb") as log:
            self._outer = subprocess.Popen(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._connect_network()
        self._wait_until(
            "the API server does not answer",
            lambda: self.kubectl("get", "--raw=/readyz", check=False) == "ok",
        )
        threading.Thread(target=self._write_names, daemon=True).start()
        self._make_pause_image()
        self._wait_until("the node is not ready", self._is_ready)
        self._make_volumes()
        self.create(RESTRICTED)
        self._policies.start()
        self._wait_until(
            "no account for pods",
            lambda: "default" in self.kubectl("get", "serviceaccounts", "--output=name"),
        )

    def _write_settings(self) -> None:
        cluster = self.state / "cluster"
        write_certificates(cluster / "pki", self.ip)
        (cluster / "node.conf").write_text(self._client("https://127.0.0.1:6443", Path("/cluster/pki")))
        self.kubeconfig.write_text(self._client(f"https://{self.ip}:6443", cluster / "pki"))
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False},
                               "x509": {"clientCAFile": "/cluster/pki/ca.crt"}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup}",
            "clusterDNS": [self.ip],
            "clusterDomain": "cluster.local",
            "resolvConf": "/etc/resolv.conf",
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "syncFrequency": "5s",
            "evictionHard": {"nodefs.available": "1%", "memory.available": "100Mi"},
            "imageGCHighThresholdPercent": 100,
            "maxPods": 100,
        }  # fmt: skip
        (cluster / "kubelet.yaml").write_text(json.dumps(kubelet))
        (cluster / "containerd.toml").write_text(CONTAINERD)
        network = self.state / "upper" / "etc" / "cni" / "net.d"
        network.mkdir(parents=True)
        (network / "10-veen.conflist").write_text(json.dumps(NETWORK))

    def _client(self, server: str, pki: Path) -> str:
        cluster = {"server": server, "certificate-authority": str(pki / "ca.crt")}
        user = {"client-certificate": str(pki / "admin.crt"), "client-key": str(pki / "admin.key")}
        return json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "veen-test", "cluster": cluster}],
                "users": [{"name": "admin", "user": user}],
                "contexts": [{"name": "veen-test", "context": {"cluster": "veen-test", "user": "admin"}}],
                "current-context": "veen-test",
            }
        )

    def _cgroup_folders(self) -> Iterator[Path]:
        hierarchies = [CGROUPS] if (CGROUPS / "cgroup.procs").exists() else list(CGROUPS.iterdir())
        yield from (each / self.cgroup for each in hierarchies if each.is_dir() and not each.is_symlink())

    def _make_cgroups(self) -> None:
        for folder in self._cgroup_folders():
            folder.mkdir()
            for name in ("cpuset.cpus", "cpuset.mems"):  # of cgroup v1, where a new one is empty
                if (folder / name).exists() and not (folder / "cgroup.controllers").exists():
                    (folder / name).write_text((folder.parent / name).read_text())

    def process(self) -> int:
        """Return the node's process 1, as this machine numbers it."""
        assert self._outer is not None
        for _ in range(200):
            if self._outer.poll() is not None:
                raise NodeError(f"the node has ended:\n{self.log('node')}")
            children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children").read_text().split()
            if children:
                return int(children[0])
            time.sleep(0.05)
        raise NodeError("the node has no process")

    def _connect_network(self) -> None:
        ours, theirs = f"veen-{self.id}", f"veen-{self.id}-n"
        process = str(self.process())
        run("ip", "link", "add", ours, "type", "veth", "peer", "name", theirs)
        try:
            run("ip", "address", "add", f"{self.host_ip}/30", "dev", ours)
            run("ip", "link", "set", ours, "up")
            run("ip", "link", "set", theirs, "netns", process, "name", "eth0")
        except NodeError:
            run("ip", "link", "delete", ours)
            raise

    def _is_ready(self) -> bool:
        found = self.kubectl("get", "nodes", "--output=json", check=False)
        conditions = [
            c for node in json.loads(found or '{"items": []}')["items"] for c in node["status"]["conditions"]
        ]
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    def _make_pause_image(self) -> None:
        """Import the program that holds a pod's namespaces, as an image of one file."""
        with tempfile.TemporaryDirectory() as folder:
            archive, image = Path(folder) / "files.tar", Path(folder) / "image.tar"
            run(
                "tar", "--create", f"--file={archive}", f"--directory={self.packages / 'kubernetes'}", "pause"
            )
            podman("import", "--quiet", '--change=ENTRYPOINT ["/pause"]', str(archive), PAUSE)
            podman("save", "--quiet", "--format=docker-archive", f"--output={image}", PAUSE)
            podman("rmi", PAUSE)
            self._wait_until(
                "containerd does not answer", lambda: (self.inside("ctr", "version", check=False)) != ""
            )
            self.import_images(image)

    def import_images(self, archive: Path) -> None:
        """Give the node the images of an archive that podman has saved."""
        with archive.open("rb") as file:
            self.inside("ctr", "--namespace=k8s.io", "images", "import", "-", stdin=file)

    def _make_volumes(self) -> None:
        """Make volumes; a claim without a class gets one."""
        standard = {"storageclass.kubernetes.io/is-default-class": "true"}
        objects: list[dict[str, Any]] = [
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "metadata": {"name": "static", "annotations": standard},
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            }
        ]
        here = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["veen-node"]}
        for number in range(VOLUMES):
            (self.state / "volumes" / str(number)).mkdir()
            specification = {
                "capacity": {"storage": "100Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "static",
                "local": {"path": f"/volumes/{number}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
            }
            metadata = {"name": f"volume-{number}"}
            objects.append(
                {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": specification}
            )
        self.create(objects)

    def create(self, objects: list[dict[str, Any]]) -> None:
        listed = {"apiVersion": "v1", "kind": "List", "items": objects}
        self.kubectl("create", "--filename=-", stdin=json.dumps(listed))

    def _write_names(self) -> None:
        """Write the names of Services into the file of the DNS server, until the node ends."""
        file, before = self.state / "cluster" / "dns" / "hosts", ""
        while not self._ended.wait(POLL_SEC):
            found = self.kubectl(
                "get", "services,endpoints", "--all-namespaces", "--output=json", check=False
            )
            if not found:
                continue
            text = "".join(sorted(names(json.loads(found)["items"])))
            if text != before:
                file.with_name("new").write_text(text)
                file.with_name("new").replace(file)
                before = text

    # --- use

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", "--request-timeout=10s", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0 and check:
            raise NodeError(f"kubectl {arguments[0]}: {done.stderr.strip()}")
        return done.stdout if done.returncode == 0 else ""

    def inside(self, *command: str, stdin: Any = subprocess.DEVNULL, check: bool = True) -> str:
        """Run a program in the node; return its output."""
        enter = [
            "nsenter",
            f"--target={self.process()}",
            "--mount",
            "--net",
            "--pid",
            "--uts",
            "--ipc",
            "--wd=/",
        ]
        done = subprocess.run([*enter, *command], stdin=stdin, capture_output=True, text=True, check=False)
        if done.returncode != 0 and check:
            raise NodeError(f"{' '.join(command[:3])}: {done.stderr.strip()[-800:]}")
        return done.stdout if done.returncode == 0 else ""

    def log(self, name: str) -> str:
        file = self.state / "cluster" / "logs" / f"{name}.log"
        return file.read_text(errors="replace")[-2_000:] if file.exists() else ""

    def _wait_until(self, what: str, holds: Any) -> None:
        deadline = time.monotonic() + START_SEC
        while not holds():
            self.process()  # raises if the node has ended
            if time.monotonic() > deadline:
                logs = "\n".join(
                    f"--- {name}\n{self.log(name)}" for name in ("apiserver", "kubelet", "containerd")
                )
                raise NodeError(f"{what} after {START_SEC:.0f} s\n{logs}")
            time.sleep(POLL_SEC)

    # --- end

    def stop(self) -> None:
        self._ended.set()
        self._policies.stop()
        if self._outer is not None:
            self._outer.kill()  # the node's process 1 ends with it, and all its processes end with that one
            self._outer.wait()
        deadline = time.monotonic() + 30
        for folder in self._cgroup_folders():
            while folder.exists():
                for each in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
                    remove_folder(each)
                remove_folder(folder)
                if time.monotonic() > deadline:
                    raise NodeError(f"{folder} cannot be removed: a process of the node has not ended")
                time.sleep(0.05)


def remove_folder(cgroup: Path) -> None:
    with suppress(OSError):  # a process in it is still ending
        cgroup.rmdir()


def names(objects: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the DNS server's file: a headless Service has the addresses of its pods."""
    pods = {
        (each["metadata"]["namespace"], each["metadata"]["name"]): [
            address["ip"] for part in each.get("subsets", []) for address in part.get("addresses", [])
        ]
        for each in objects
        if each["kind"] == "Endpoints"
    }
    for each in objects:
        if each["kind"] == "Service":
            key = (each["metadata"]["namespace"], each["metadata"]["name"])
            own = each["spec"].get("clusterIP", "None")
            for ip in pods.get(key, []) if own == "None" else [own]:
                yield f"{ip} {key[1]}.{key[0]}.svc.cluster.local\n"


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NodeError(f"{' '.join(command[:4])}: {done.stderr.strip()}")
    return done.stdout


def podman(*arguments: str) -> str:
    os.environ.setdefault("CONTAINERS_CONF", str(HERE.parent / "tests" / "containers.conf"))
    return run("podman", *arguments)


def host_settings() -> dict[str, str]:
    """Return the machine's settings that a kubelet or kube-proxy writes."""
    files = {name: Path("/proc/sys") / name for name in HOST_SETTINGS}
    return {name: file.read_text() for name, file in files.items() if file.exists()}


def restore_settings(before: dict[str, str]) -> list[str]:
    """Write back the settings that have changed; return their names."""
    now = host_settings()
    changed = [name for name, value in before.items() if now.get(name) != value]
    for name in changed:
        (Path("/proc/sys") / name).write_text(before[name])
    return changed


@contextmanager
def running(packages: Path) -> Iterator[Node]:
    """Run a node; at the end, remove all of it."""
    before = host_settings()
    with tempfile.TemporaryDirectory(prefix="veen-cluster-") as folder:
        node = Node(packages, Path(folder))
        try:
            node.start()
            yield node
        finally:
            if kept := os.environ.get("VEEN_CLUSTER_LOGS"):
                shutil.copytree(Path(folder) / "cluster" / "logs", kept, dirs_exist_ok=True)
            node.stop()
            if changed := restore_settings(before):
                sys.stderr.write(f"restored {', '.join(changed)} in /proc/sys\n")


RESTRICTED: Final[list[dict[str, Any]]] = [
    {
        "apiVersion": "policy/v1beta1",
        "kind": "PodSecurityPolicy",
        "metadata": {
            "name": "restricted",
            "annotations": {"seccomp.security.alpha.kubernetes.io/allowedProfileNames": "runtime/default"},
        },
        "spec": {
            "privileged": False,
            "allowPrivilegeEscalation": False,
            "requiredDropCapabilities": ["ALL"],
            "volumes": [
                "configMap",
                "emptyDir",
                "projected",
                "secret",
                "downwardAPI",
                "persistentVolumeClaim",
            ],
            "runAsUser": {"rule": "MustRunAsNonRoot"},
            "seLinux": {"rule": "RunAsAny"},
            "supplementalGroups": {"rule": "RunAsAny"},
            "fsGroup": {"rule": "RunAsAny"},
            "readOnlyRootFilesystem": True,
        },
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "restricted-pods"},
        "rules": [
            {
                "apiGroups": ["policy"],
                "resources": ["podsecuritypolicies"],
                "resourceNames": ["restricted"],
                "verbs": ["use"],
            }
        ],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "restricted-pods"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "restricted-pods",
        },
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}
        ],
    },
]
"""The restricted standard as Kubernetes 1.20 enforces it, and a read-only root, for every pod."""
CONTAINERD: Final = f"""version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "/usr/lib/cni"
  conf_dir = "/etc/cni/net.d"
[plugins."io.containerd.grpc.v1.cri".containerd]
  default_runtime_name = "runc"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
"""
NETWORK: Final = {
    "cniVersion": "0.4.0",
    "name": "veen",
    "plugins": [
        {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipMasq": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.244.0.0/24"}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
    ],
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="folder that make-kubernetes has filled")
    parser.add_argument(
        "--image", action="append", default=[], help="an image of podman for the node; repeatable"
    )
    parser.add_argument("command", nargs="+", help="program that gets KUBECONFIG, with its arguments")
    given = parser.parse_args()
    with running(given.folder.resolve()) as node:
        if given.image:
            archive = node.state / "images.tar"
            podman("save", "--quiet", "--multi-image-archive", f"--output={archive}", *given.image)
            node.import_images(archive)
        return subprocess.run(
            given.command, env={**os.environ, "KUBECONFIG": str(node.kubeconfig)}, check=False
        ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
