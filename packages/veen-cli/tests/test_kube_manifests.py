"""The manifests under k8s/: what spec-4 demands, and the same objects from Kustomize and from `veen kube`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from veen_cli.kube import kustomize
from veen_cli.kube.kustomize import containers_of, metadata_of, pod_template
from veen_cli.kube.tenant import CONFIG_HASH, KubeNetwork, check_images, manifests, objects_of
from veen_core.errors import ConfigError
from veen_hub.ops.config.loading import load as load_hub
from veen_hub.witness.config import load as load_witness

BASES = sorted(path.parent for path in manifests().glob("base/*/kustomization.yaml"))
OVERLAYS = sorted(path.parent for path in manifests().glob("overlays/*/kustomization.yaml"))
NETWORKS = {
    "authority": KubeNetwork(tenant=None, tag="0.1.0"),
    "authority with monitoring": KubeNetwork(tenant=None, tag="0.1.0", monitoring=True),
    "disposable tenant": KubeNetwork(tenant="acme", tag="0.1.0"),
    "tenant with every choice": KubeNetwork(
        tenant="acme",
        tag="0.1.0",
        persistent=True,
        heads_memory=True,
        anchors=True,
        tls=True,
        selftests=("core", "overlays", "goals"),
        selftest_reports=True,
    ),
}
OLDEST, NEWEST = "1.25", "1.37"


def rendered() -> dict[str, list[dict[str, Any]]]:
    """Every set of objects that this project offers, by name."""
    sets = {
        f"{path.parent.name}/{path.name}": kustomize.build(kustomize.read(path)) for path in BASES + OVERLAYS
    }
    return sets | {name: objects_of(network) for name, network in NETWORKS.items()}


RENDERED = rendered()


def everything() -> Iterator[dict[str, Any]]:
    for objects in RENDERED.values():
        yield from objects


def named(objects: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in objects
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("folder", BASES + OVERLAYS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_kubectl_renders_the_same_objects(folder: Path) -> None:
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    theirs = [each for each in yaml.safe_load_all(done.stdout) if each]
    assert named(theirs) == named(kustomize.build(kustomize.read(folder)))


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("objects", RENDERED.values(), ids=RENDERED)
def test_every_object_obeys_the_schema_of_kubernetes(objects: list[dict[str, Any]], version: str) -> None:
    for each in objects:
        if not each["apiVersion"].startswith("monitoring.coreos.com/"):  # kinds of the Prometheus Operator
            kubernetes_validate.validate(each, version, strict=True)


def test_the_schema_check_can_fail() -> None:
    (deployment,) = [each for each in RENDERED["base/tenant"] if each["kind"] == "Deployment"]
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            {**deployment, "spec": {**deployment["spec"], "replica": 1}}, NEWEST, strict=True
        )


def violations(template: dict[str, Any]) -> list[str]:
    """Return what the restricted Pod Security Standard forbids in a pod template."""
    spec = template["spec"]
    pod = spec.get("securityContext", {})
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    allowed = {
        "configMap",
        "csi",
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
    found += [
        f"volume {volume['name']}"
        for volume in spec.get("volumes", [])
        if not (set(volume) - {"name"}) <= allowed
    ]
    for container in [*spec.get("initContainers", []), *spec["containers"]]:
        own = container.get("securityContext", {})
        both = {**pod, **own}
        checks = {
            "privileged": own.get("privileged", False) is False,
            "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
            "capabilities": own.get("capabilities", {}).get("drop") == ["ALL"]
            and set(own.get("capabilities", {}).get("add", [])) <= {"NET_BIND_SERVICE"},
            "runAsNonRoot": both.get("runAsNonRoot") is True,
            "runAsUser": both.get("runAsUser") != 0,
            "seccompProfile": both.get("seccompProfile", {}).get("type") in ("RuntimeDefault", "Localhost"),
            "hostPort": not any(port.get("hostPort") for port in container.get("ports", [])),
            "procMount": own.get("procMount", "Default") == "Default",
        }
        found += [f"{container['name']}: {rule}" for rule, obeyed in checks.items() if not obeyed]
    return found


def test_every_pod_obeys_the_restricted_standard_and_more() -> None:
    seen = 0
    for each in everything():
        if (template := pod_template(each)) is None:
            continue
        seen += 1
        assert violations(template) == [], each["metadata"]["name"]
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False, "a Service named veen-hub would set VEEN_HUB_PORT"
        for container in containers_of(each):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert {"cpu", "memory"} <= set(container["resources"]["requests"])
            assert {"cpu", "memory"} <= set(container["resources"]["limits"])
    assert seen > 20


@pytest.mark.parametrize(
    ("path", "value", "rule"),
    [
        (("spec", "hostNetwork"), True, "hostNetwork"),
        (("spec", "volumes", 0), {"name": "veen-data", "hostPath": {"path": "/"}}, "volume veen-data"),
        (("spec", "securityContext", "runAsNonRoot"), False, "hub: runAsNonRoot"),
        (("spec", "securityContext", "seccompProfile"), {"type": "Unconfined"}, "hub: seccompProfile"),
        (("spec", "containers", 0, "securityContext", "capabilities"), {}, "hub: capabilities"),
        (("spec", "containers", 0, "securityContext", "privileged"), True, "hub: privileged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_restricted_check_can_fail(path: tuple[Any, ...], value: object, rule: str) -> None:
    (deployment,) = [
        each
        for each in kustomize.build(kustomize.read(manifests() / "base/tenant"))
        if each["kind"] == "Deployment"
    ]
    template = pod_template(deployment)
    target: Any = template
    for part in path[:-1]:
        target = target[part]
    target[path[-1]] = value
    assert template is not None
    assert violations(template) == [rule]


# --- names, labels and structure (spec-4 §3 to §5, §12.2)


def test_the_authority_has_the_resources_that_spec_4_names() -> None:
    objects = named(RENDERED["authority"])
    for kind, name in (
        ("StatefulSet", "veen-authority-hub"),
        ("Service", "veen-authority"),
        ("ConfigMap", "veen-authority-config"),
        ("PersistentVolumeClaim", "veen-authority-data"),
        ("Job", "veen-selftest-authority"),
    ):
        assert (kind, "veen-system", name) in objects
    assert [key[0] for key in objects].count("StatefulSet") == 1, "exactly one authority hub (§12.2)"
    template = pod_template(objects["StatefulSet", "veen-system", "veen-authority-hub"])
    assert template is not None
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert "persistentVolumeClaim" in volumes["veen-data"], "never emptyDir (§4.4)"


def test_a_tenant_has_the_resources_that_spec_4_names() -> None:
    objects = named(RENDERED["disposable tenant"])
    namespace = "veen-tenant-acme"
    for kind, name in (
        ("Deployment", "veen-hub"),
        ("Service", "veen-hub"),
        ("ConfigMap", "veen-hub-config"),
        ("Job", "veen-selftest-core"),
    ):
        assert (kind, namespace, name) in objects
    deployments = [key for key in objects if key[0] == "Deployment"]
    assert deployments == [("Deployment", namespace, "veen-hub")], "at most one hub (§12.2)"
    assert objects["Deployment", namespace, "veen-hub"]["spec"]["replicas"] == 1


def test_every_server_writes_log_lines_only() -> None:
    """spec-4 §10.3."""
    servers = {"veen-hub", "veen-bridge", "veen-witness", "veen-query"}
    seen = set()
    for each in everything():
        for container in containers_of(each):
            if (program := container.get("command", [""])[0]) in servers:
                assert "--quiet" in container["args"], each["metadata"]["name"]
                seen.add(program)
    assert seen == servers


@pytest.mark.parametrize(
    ("network", "role", "config", "keys"),
    [
        ("authority", "authority", "veen-authority-config", "veen-authority-keys"),
        ("disposable tenant", "tenant", "veen-hub-config", "veen-hub-keys"),
    ],
)
def test_a_hub_starts_as_spec_4_writes_it(network: str, role: str, config: str, keys: str) -> None:
    (hub,) = [each for each in RENDERED[network] if each["kind"] in ("Deployment", "StatefulSet")]
    template = pod_template(hub)
    assert template is not None
    (container,) = template["spec"]["containers"]
    assert container["command"] == ["veen-hub"]
    assert container["args"][:3] == [
        f"--profile={role}",
        "--config=/etc/veen/hub.yaml",
        "--data-dir=/var/lib/veen",
    ]
    environment = {each["name"]: each for each in container["env"]}
    assert environment["VEEN_ROLE"]["value"] == role
    assert environment["VEEN_LOG_LEVEL"]["value"] == "info"
    assert {"VEEN_UNIVERSE_ID", *(["VEEN_TENANT_ID"] if role == "tenant" else [])} <= set(environment)
    mounts = {each["mountPath"]: each for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    assert volumes[mounts["/etc/veen"]["name"]]["configMap"]["name"] == config
    assert volumes[mounts["/etc/veen/keys"]["name"]]["secret"]["secretName"] == keys
    assert mounts["/etc/veen"]["readOnly"]
    assert mounts["/etc/veen/keys"]["readOnly"]
    assert not mounts["/var/lib/veen"].get("readOnly", False)
    assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"


def test_the_probes_of_the_query_api_need_no_credentials() -> None:
    (template,) = (found for each in RENDERED["base/query"] if (found := pod_template(each)) is not None)
    (container,) = template["spec"]["containers"]
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    assert {container[name]["httpGet"]["port"] for name in probes} == {"probes"}, "the API's port answers 401"


COMPONENTS = {"hub", "bridge", "cli", "selftest", "witness", "query"}
ROLES = {"authority", "tenant", "bridge", "selftest", "witness", "query"}


def test_every_workload_has_the_labels_of_spec_4() -> None:
    for name, objects in RENDERED.items():
        if name.startswith("base/"):
            continue  # its overlay adds universe and tenant
        for each in objects:
            if each["kind"] not in ("Deployment", "StatefulSet", "Job", "CronJob", "Service"):
                continue
            tenant = each["metadata"]["namespace"].startswith("veen-tenant-")
            for metadata in metadata_of(each):  # also of the pods, and of the Jobs that a CronJob makes
                labels = metadata["labels"]
                assert labels.get("app.kubernetes.io/part-of") == "veen", each["metadata"]["name"]
                assert labels["app.kubernetes.io/component"] in COMPONENTS
                assert labels["veen.io/role"] in ROLES
                assert labels["veen.io/universe-id"]
                assert ("veen.io/tenant-id" in labels) is tenant, each["metadata"]["name"]


@pytest.mark.parametrize(
    ("base", "suites"),
    [
        ("selftest", ["core"]),
        ("selftest-overlays", ["overlays"]),
        ("selftest-goals", ["goals", "bridge", "recorder", "dr", "query", "trust", "crash"]),
        ("authority-selftest", ["authority"]),
    ],
)
def test_a_self_test_runs_its_suites_logs_in_json_and_writes_both_reports(
    base: str, suites: list[str]
) -> None:
    """spec-4 §8.1, §8.2, §10.3."""
    (job,) = [each for each in RENDERED[f"base/{base}"] if each["kind"] == "Job"]
    (container,) = containers_of(job)
    assert container["args"][: len(suites)] == suites
    assert container["args"][len(suites)].startswith("--")
    assert {"--junit=/reports/junit.xml", "--report=/reports/report.json"} <= set(container["args"])
    assert {"name": "VEEN_LOG_FORMAT", "value": "json"} in container["env"]


def test_with_tls_every_self_test_of_the_hub_asks_over_tls() -> None:
    network = KubeNetwork(
        tenant="acme", tag="0.1.0", tls=True, selftests=("core", "overlays"), selftest_reports=True
    )
    tests = [each for each in objects_of(network) if each["kind"] in ("Job", "CronJob")]
    assert len(tests) == 3
    for each in tests:
        (container,) = containers_of(each)
        assert container["args"][1:3] == ["--hub", "https://veen-hub:8080"]
        assert "--ca=/etc/veen-tls/ca.crt" in container["args"]
        template = pod_template(each)
        assert template is not None
        claims = [
            volume.get("persistentVolumeClaim", {}).get("claimName") for volume in template["spec"]["volumes"]
        ]
        assert claims.count("veen-selftest-reports") == 1


RESOURCES = {"NetworkPolicy": "networkpolicies"}
"""Plurals that are not the kind with an s."""


@pytest.mark.parametrize("network", NETWORKS)
def test_the_operators_role_allows_all_that_veen_kube_does(network: str) -> None:
    """spec-4 §9.1: get, create and patch for each kind that is applied, and what the other commands need."""
    (role,) = [each for each in RENDERED["authority"] if each["kind"] == "ClusterRole"]
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    needed = {("", "secrets", "create"), ("", "namespaces", "delete"), ("batch", "jobs", "delete")}
    # kubectl does not wait for the end of what it may not watch: `veen kube destroy` would end too early.
    needed |= {("", "namespaces", "watch"), ("batch", "jobs", "watch")}
    for each in objects_of(NETWORKS[network]):
        group = each["apiVersion"].partition("/")[0] if "/" in each["apiVersion"] else ""
        resource = RESOURCES.get(each["kind"], each["kind"].lower() + "s")
        verbs = ["get"] if each["kind"] == "ClusterRole" else ["get", "create", "patch"]
        needed |= {(group, resource, verb) for verb in verbs}
    assert needed <= allowed, sorted(needed - allowed)


@pytest.mark.parametrize("base", ["bridge", "query", "selftest", "selftest-overlays"])
def test_the_network_policy_admits_every_pod_that_talks_to_the_hub(base: str) -> None:
    """spec-4 §9.2."""
    (policy,) = [each for each in RENDERED["disposable tenant"] if each["kind"] == "NetworkPolicy"]
    peers = [
        peer["podSelector"]["matchLabels"]
        for rule in policy["spec"]["ingress"]
        for peer in rule["from"]
        if "podSelector" in peer
    ]
    for each in RENDERED[f"base/{base}"]:
        if (template := pod_template(each)) is not None:
            labels = template["metadata"]["labels"]
            assert any(peer.items() <= labels.items() for peer in peers), each["metadata"]["name"]


def test_no_manifest_contains_a_key() -> None:
    assert not [each for each in everything() if each["kind"] == "Secret"]


def test_a_tenant_reaches_the_authority_by_its_service() -> None:
    config = named(RENDERED["disposable tenant"])["ConfigMap", "veen-tenant-acme", "veen-hub-config"]
    settings = yaml.safe_load(config["data"]["hub.yaml"])
    assert settings["authority_url"] == "http://veen-authority.veen-system.svc.cluster.local:8080"
    assert settings["hub_profile"] == "tenant"


def test_every_configuration_is_one_that_its_program_accepts(tmp_path: Path) -> None:
    """The overlay `prod` names two witnesses."""
    checked: list[int] = []
    path = tmp_path / "settings.yaml"
    for each in everything():
        if each["kind"] != "ConfigMap":
            continue
        data = each["data"]
        if "hub.yaml" in data:
            path.write_text(data["hub.yaml"])
            checked.append(len(load_hub(path, {"data_dir": str(tmp_path)}).hub_log.witnesses))
        elif "witness.yaml" in data:
            path.write_text(data["witness.yaml"])
            assert load_witness(path, {}).listen.port == 8090
            checked.append(-1)
    assert 2 in checked
    assert -1 in checked


def test_selectors_never_change_with_tenant_version_or_choice() -> None:
    """They are immutable: a new version could not be applied over an old one."""
    found: dict[tuple[str, str], set[str]] = {}
    for each in everything():
        selector = each["spec"].get("selector") if "spec" in each else None
        if selector is not None:
            found.setdefault((each["kind"], each["metadata"]["name"]), set()).add(str(selector))
    assert len(found) > 5
    assert all(len(selectors) == 1 for selectors in found.values()), found


def test_a_stateful_set_replaces_a_pod_that_never_became_ready() -> None:
    """Kubernetes waits for such a pod by default: a version that does not start could not be taken back."""
    sets = [each for each in everything() if each["kind"] == "StatefulSet"]
    assert {each["metadata"]["name"] for each in sets} == {"veen-authority-hub", "veen-witness"}
    for each in sets:
        assert each["spec"].get("podManagementPolicy") == "Parallel", each["metadata"]["name"]


# --- the choices of `veen kube`


def hub_template(network: KubeNetwork) -> dict[str, Any]:
    (hub,) = [each for each in objects_of(network) if each["kind"] == "Deployment"]
    template = pod_template(hub)
    assert template is not None
    return template


def test_a_changed_config_map_restarts_the_hub_and_nothing_else_does() -> None:
    hashes = [
        hub_template(KubeNetwork(tenant="acme", tag=tag, admin=admin))["metadata"]["annotations"][CONFIG_HASH]
        for tag, admin in (("0.1.0", "aa"), ("0.1.0", "aa"), ("0.2.0", "aa"), ("0.1.0", "bb"))
    ]
    assert hashes[0] == hashes[1] == hashes[2] != hashes[3]


def test_a_tenant_with_volumes_keeps_data_and_memory_apart() -> None:
    template = hub_template(NETWORKS["tenant with every choice"])
    volumes = {each["name"]: each for each in template["spec"]["volumes"]}
    assert volumes["veen-data"]["persistentVolumeClaim"]["claimName"] == "veen-hub-data"
    assert volumes["veen-heads"]["persistentVolumeClaim"]["claimName"] == "veen-hub-heads"
    (container,) = template["spec"]["containers"]
    mounts = {each["name"]: each for each in container["volumeMounts"]}
    assert mounts["veen-data"]["subPath"], "the root of a new volume may have lost+found"
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"


def test_images_are_named_by_prefix_and_tag() -> None:
    network = KubeNetwork(tenant="acme", tag="1.2.3", image_prefix="registry.example/veen/")
    images = {container["image"] for each in objects_of(network) for container in containers_of(each)}
    assert images == {"registry.example/veen/veen-hub:1.2.3", "registry.example/veen/veen-selftest:1.2.3"}


@pytest.mark.parametrize("name", ["Acme", "acme_1", "-acme", "acme-", "a" * 48, "", "acme/../system"])
def test_a_tenant_whose_name_is_not_safe_in_dns_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="DNS-safe"):
        KubeNetwork(tenant=name, tag="0.1.0")


@pytest.mark.parametrize(
    "choice",
    [{"tag": ""}, {"tag": "a b"}, {"image_prefix": "registry.example/veen"}, {"image_prefix": "a b/"}],
    ids=["no tag", "tag with a space", "prefix without a slash", "prefix with a space"],
)
def test_an_image_that_cannot_be_named_is_refused(choice: dict[str, str]) -> None:
    choices = {"tag": "0.1.0", "image_prefix": "", **choice}
    with pytest.raises(ConfigError, match=r"tag|image prefix"):
        check_images(KubeNetwork(tenant="acme", tag=choices["tag"], image_prefix=choices["image_prefix"]))


def test_what_the_small_kustomize_does_not_know_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text("namePrefix: x-\nresources: []\n")
    with pytest.raises(ConfigError, match="namePrefix"):
        kustomize.read(tmp_path)
