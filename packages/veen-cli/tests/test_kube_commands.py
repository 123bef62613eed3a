"""`veen kube apply`, `status`, `rotate`, `destroy`: keys are made once, and nothing foreign is deleted.

kubectl is a stand-in here; `k8s/tests` runs the same objects as containers.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from veen_cli.frame.exits import Exit
from veen_core.ids import HubPk
from veen_core.keys import SigningKey
from veen_core.keystore import Secrets
from veen_core.stream import hub_id
from veen_storage.disk.hub_keys import KeyFile

from .kubectl_stand_in import use_stand_in
from .running import veen


class State:
    """The objects that the stand-in has."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, kind: str, namespace: str, name: str) -> Any:
        return json.loads(self.path.read_text()).get(f"{kind}|{namespace}|{name}")

    def secret(self, name: str) -> dict[str, bytes]:
        data = self.get("secret", "veen-tenant-acme", name)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    return State(use_stand_in(tmp_path, monkeypatch))


def test_apply_makes_keys_whose_public_values_the_answer_tells(cluster: State) -> None:
    answer = veen("kube", "apply", "--tenant", "acme", "--json").json
    ((_, content),) = cluster.secret("veen-hub-keys").items()
    stored = KeyFile.decode(content)
    assert SigningKey(stored.seed).public == stored.hub_pk
    assert answer["hub_id"] == hub_id(HubPk(stored.hub_pk)).hex()
    admin = Secrets.decode(cluster.secret("veen-admin-keys")["secrets.cbor"])
    assert answer["admin"] == admin.signing_key.public.hex()
    config = cluster.get("configmap", "veen-tenant-acme", "veen-hub-config")
    assert config["data"]["admin"] == answer["admin"]
    assert answer["selftest"] is True


def test_apply_again_keeps_every_key(cluster: State) -> None:
    first = veen("kube", "apply", "--tenant", "acme", "--json").json
    before = cluster.secret("veen-hub-keys"), cluster.secret("veen-admin-keys")
    assert veen("kube", "apply", "--tenant", "acme", "--persistent", "--json").json == first
    assert (cluster.secret("veen-hub-keys"), cluster.secret("veen-admin-keys")) == before


def test_a_self_test_that_fails_is_the_exit_code(cluster: State) -> None:
    Path(f"{cluster.path}.job").touch()
    told = veen("kube", "apply", "--tenant", "acme")
    assert told.code == Exit.SELFTEST
    assert "veen-selftest-core in veen-tenant-acme did not pass" in told.err
    assert "kubectl logs job/veen-selftest-core" in told.err
    assert veen("kube", "status").code == Exit.SELFTEST


def image_of(cluster: State, kind: str, namespace: str, name: str) -> str:
    (container,) = cluster.get(kind, namespace, name)["spec"]["template"]["spec"]["containers"]
    return str(container["image"])


def test_an_upgrade_keeps_the_choices_of_every_network_and_begins_with_the_authority(cluster: State) -> None:
    """spec-4 §11.3."""
    veen(
        "kube", "apply", "--tenant", "acme", "--persistent", "--image-prefix", "registry.example/", "--quiet"
    )
    veen("kube", "apply", "--authority", "--quiet")
    keys = cluster.secret("veen-hub-keys")
    done = veen("kube", "upgrade", "--tag", "0.2.0", "--json").json
    assert [each["namespace"] for each in done["networks"]] == ["veen-system", "veen-tenant-acme"]
    assert image_of(cluster, "statefulset", "veen-system", "veen-authority-hub") == "veen-hub:0.2.0"
    hub = "deployment", "veen-tenant-acme", "veen-hub"
    assert image_of(cluster, *hub) == "registry.example/veen-hub:0.2.0"
    volumes = cluster.get(*hub)["spec"]["template"]["spec"]["volumes"]
    assert "persistentVolumeClaim" in volumes[0]
    assert cluster.secret("veen-hub-keys") == keys


def test_a_version_that_fails_its_self_test_stops_at_the_first_hub(cluster: State) -> None:
    veen("kube", "apply", "--authority", "--quiet")
    veen("kube", "apply", "--tenant", "acme", "--quiet")
    Path(f"{cluster.path}.job").touch()
    assert veen("kube", "upgrade", "--tag", "0.2.0", "--quiet").code == Exit.SELFTEST
    assert image_of(cluster, "deployment", "veen-tenant-acme", "veen-hub").startswith("veen-hub:0.1")


@pytest.mark.usefixtures("cluster")
def test_an_upgrade_names_a_tenant_that_is_not_there() -> None:
    veen("kube", "apply", "--tenant", "acme", "--quiet")
    assert "nobody" in veen("kube", "upgrade", "--tag", "0.2.0", "--tenant", "nobody").failed(Exit.USAGE)


def test_apply_does_not_take_a_volume_from_a_hub(cluster: State) -> None:
    """It would begin a second history under its key."""
    veen("kube", "apply", "--tenant", "acme", "--persistent", "--quiet")
    before = cluster.path.read_text()
    assert "--persistent" in veen("kube", "apply", "--tenant", "acme").failed(Exit.POLICY)
    assert cluster.path.read_text() == before


def test_a_dry_run_changes_nothing(cluster: State) -> None:
    shown = veen("kube", "apply", "--tenant", "acme", "--dry-run").ok()
    assert "kind: Deployment" in shown.out
    assert not cluster.path.exists()


def test_rotation_adds_a_key_and_keeps_the_old_one(cluster: State) -> None:
    veen("kube", "apply", "--tenant", "acme")
    old = cluster.secret("veen-hub-keys")
    told = veen("kube", "rotate", "--tenant", "acme")
    assert told.code == 0, told
    new = cluster.secret("veen-hub-keys-next")
    assert old.items() < new.items()
    assert len(new) == 2
    assert cluster.secret("veen-hub-keys") == new, "so that the next `veen kube apply` mounts both"
    spec = cluster.get("deployment", "veen-tenant-acme", "veen-hub")["spec"]["template"]["spec"]
    (keys,) = [volume for volume in spec["volumes"] if volume["name"] == "veen-keys"]
    assert keys["secret"]["secretName"] == "veen-hub-keys-next"


def test_an_interrupted_rotation_goes_on_with_its_key(cluster: State) -> None:
    veen("kube", "apply", "--tenant", "acme")
    old = cluster.get("secret", "veen-tenant-acme", "veen-hub-keys")
    veen("kube", "rotate", "--tenant", "acme")
    begun = cluster.secret("veen-hub-keys-next")
    objects = json.loads(cluster.path.read_text())
    objects["secret|veen-tenant-acme|veen-hub-keys"] = old  # as if the last step were missing
    cluster.path.write_text(json.dumps(objects))
    veen("kube", "rotate", "--tenant", "acme")
    assert cluster.secret("veen-hub-keys-next") == cluster.secret("veen-hub-keys") == begun


@pytest.mark.parametrize("command", [("apply", "--tenant", "acme"), ("upgrade", "--tag", "0.2.0")])
def test_after_an_interrupted_rotation_the_hub_is_not_given_its_old_keys_alone(
    cluster: State, command: tuple[str, ...]
) -> None:
    """The hub may have rotated already: without its newest key it would not start."""
    veen("kube", "apply", "--tenant", "acme")
    old = cluster.get("secret", "veen-tenant-acme", "veen-hub-keys")
    veen("kube", "rotate", "--tenant", "acme")
    objects = json.loads(cluster.path.read_text())
    objects["secret|veen-tenant-acme|veen-hub-keys"] = old  # as if the last step were missing
    cluster.path.write_text(json.dumps(objects))
    before = cluster.get("deployment", "veen-tenant-acme", "veen-hub")
    assert "veen kube rotate --tenant acme" in veen("kube", *command).failed(Exit.POLICY)
    assert cluster.get("deployment", "veen-tenant-acme", "veen-hub") == before


def test_destroy_asks_and_deletes_one_tenant(cluster: State) -> None:
    for tenant in ("acme", "other"):
        veen("kube", "apply", "--tenant", tenant)
    assert veen("kube", "destroy", "--tenant", "acme", stdin=b"n\n").code != 0
    assert cluster.get("namespace", "", "veen-tenant-acme") is not None
    assert veen("kube", "destroy", "--tenant", "acme", "--yes").code == 0
    assert cluster.get("namespace", "", "veen-tenant-acme") is None
    networks = veen("kube", "status", "--json").json["networks"]
    assert [network["namespace"] for network in networks] == ["veen-tenant-other"]


def test_destroy_refuses_a_namespace_that_is_not_veens(cluster: State) -> None:
    metadata = {"name": "veen-tenant-acme", "labels": {}}
    cluster.path.write_text(
        json.dumps({"namespace||veen-tenant-acme": {"kind": "Namespace", "metadata": metadata}})
    )
    assert "does not belong to VEEN" in veen("kube", "destroy", "--tenant", "acme", "--yes").failed(
        Exit.POLICY
    )


def test_without_kubectl_the_error_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "kubectl is not on PATH" in veen("kube", "status").failed(Exit.USAGE)


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_a_cluster_that_does_not_answer_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBECONFIG", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "kubectl get failed" in veen("kube", "status").failed(Exit.NETWORK)


@pytest.mark.parametrize("choice", [(), ("--tenant", "acme", "--authority")], ids=["neither", "both"])
def test_a_network_is_a_tenant_or_the_authority(choice: tuple[str, ...]) -> None:
    assert "give --tenant NAME or --authority" in veen("kube", "render", *choice).err
