"""A tenant network or the authority as Kubernetes objects (spec-4 §4, §5, §8)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from veen_cli.kube import kustomize
from veen_cli.kube.kustomize import Image, Kustomization, Object
from veen_core.errors import ConfigError

AUTHORITY_NAMESPACE: Final = "veen-system"
IMAGES: Final = ("veen-hub", "veen-cli", "veen-bridge", "veen-selftest", "veen-witness", "veen-query")
SELFTESTS: Final = {"core": "selftest", "overlays": "selftest-overlays", "goals": "selftest-goals"}
"""The base of each self-test of a tenant."""
CONFIG_HASH: Final = "veen.io/config-hash"
"""Annotation of a pod template: the hash of the ConfigMaps that the pod mounts. A change restarts the pod."""
VERSION: Final = "veen.io/version"
CHOICES: Final = "veen.io/choices"
"""Annotation of a namespace: the choices with which its network was applied, as JSON."""
_CHOSEN: Final = (
    "universe",
    "persistent",
    "heads_memory",
    "anchors",
    "network_policy",
    "tls",
    "monitoring",
    "selftests",
    "selftest_reports",
    "image_prefix",
)
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,45}[a-z0-9])?")
"""Names that are safe in DNS, with room for ``veen-tenant-`` within the 63 characters of a namespace."""
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
_PREFIX: Final = re.compile(r"([a-z0-9][a-z0-9._:/-]*/)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeNetwork:
    """One VEEN network: a tenant, or the authority of the universe if ``tenant`` is None."""

    tenant: str | None
    universe: str = "default"
    persistent: bool = False
    heads_memory: bool = False
    anchors: bool = False
    network_policy: bool = True
    tls: bool = False
    monitoring: bool = False
    selftests: tuple[str, ...] = ("core",)
    """Self-tests of a tenant, each a Job; the authority has its own if there is any."""
    selftest_reports: bool = False
    admin: str = ""
    image_prefix: str = ""
    tag: str

    def __post_init__(self) -> None:
        for what, name in (("tenant", self.tenant), ("universe", self.universe)):
            if name is not None and not _NAME.fullmatch(name):
                raise ConfigError(
                    f"{what} {name!r} is not a DNS-safe name of at most 47 characters",
                    action="use lowercase letters, digits and hyphens (spec-4 §3.1)",
                )
        if self.tenant is None and (self.persistent or self.heads_memory or self.anchors or self.tls):
            raise ConfigError("persistent data, heads memory, anchors and TLS are choices of tenants only")
        if self.tenant is None and (self.selftest_reports or not {*self.selftests} <= {"core"}):
            raise ConfigError("--selftest and --selftest-reports are choices of tenants only")
        if self.tenant is not None and self.monitoring:
            raise ConfigError(
                "monitoring covers all namespaces and is applied once, with the authority",
                action="give --monitoring together with --authority",
            )

    @property
    def namespace(self) -> str:
        return AUTHORITY_NAMESPACE if self.tenant is None else f"veen-tenant-{self.tenant}"

    @property
    def config_map(self) -> str:
        return "veen-authority-config" if self.tenant is None else "veen-hub-config"

    @property
    def key_secret(self) -> str:
        return "veen-authority-keys" if self.tenant is None else "veen-hub-keys"

    @property
    def choices(self) -> str:
        """The choices of the network as JSON."""
        return json.dumps({name: getattr(self, name) for name in _CHOSEN}, sort_keys=True)


def network_of(namespace: Object, tag: str) -> KubeNetwork | None:
    """Return the network of a namespace as it was applied, with another tag; None if nothing says how."""
    metadata = namespace["metadata"]
    text = metadata.get("annotations", {}).get(CHOICES)
    if text is None:
        return None
    chosen = json.loads(text)
    tenant = metadata["labels"].get("veen.io/tenant-id")
    return KubeNetwork(tenant=tenant, tag=tag, **{**chosen, "selftests": tuple(chosen["selftests"])})


def check_images(network: KubeNetwork) -> None:
    """Refuse a tag or a prefix with which no image can be named."""
    if not _TAG.fullmatch(network.tag):
        raise ConfigError(f"tag {network.tag!r} is not the tag of an image", action="use one such as 0.1.0")
    if not _PREFIX.fullmatch(network.image_prefix):
        raise ConfigError(
            f"image prefix {network.image_prefix!r} is not a registry and a path that end with a slash",
            action="write it like registry.example/veen/",
        )


def manifests() -> Path:
    """Return the folder of the manifests, which are the files under ``k8s/`` of the source tree."""
    return Path(str(resources.files("veen_cli.kube"))) / "manifests"


def kustomization(network: KubeNetwork) -> Kustomization:
    """Return the kustomization of a network: which bases and components, with which changes."""
    root, authority = manifests(), network.tenant is None
    bases = [root / "base" / ("authority" if authority else "tenant")]
    if authority and network.selftests:
        bases.append(root / "base" / "authority-selftest")
    elif not authority:
        bases += [root / "base" / SELFTESTS[name] for name in dict.fromkeys(network.selftests)]
    chosen = {
        "persistent-data": network.persistent,
        "heads-memory": network.heads_memory,
        "anchors": network.anchors,
        "tls": network.tls,
        "selftest-reports": network.selftest_reports,
        "monitoring": network.monitoring,
        "authority-network-policy" if authority else "network-policy": network.network_policy,
    }
    labels = {"veen.io/universe-id": network.universe}
    if network.tenant is not None:
        labels["veen.io/tenant-id"] = network.tenant
    return Kustomization(
        resources=tuple(bases),
        components=tuple(root / "components" / name for name, wanted in chosen.items() if wanted),
        namespace=network.namespace,
        labels=labels,
        images=tuple(
            Image(name=name, new_name=f"{network.image_prefix}{name}", new_tag=network.tag) for name in IMAGES
        ),
    )


def objects_of(network: KubeNetwork) -> list[Object]:
    """Return the objects of a network, in the order in which they must be created."""
    objects = kustomize.build(kustomization(network))
    for each in objects:
        if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", network.config_map):
            each["data"]["admin"] = network.admin
        if each["kind"] == "Namespace":
            each["metadata"].setdefault("annotations", {})[CHOICES] = network.choices
    stamp(objects, network.tag)
    return sorted(objects, key=lambda each: ORDER.index(each["kind"]))


ORDER: Final = (
    "Namespace",
    "ClusterRole",
    "Role",
    "NetworkPolicy",
    "Secret",
    "ConfigMap",
    "PersistentVolumeClaim",
    "Service",
    "PodDisruptionBudget",
    "ServiceMonitor",
    "PodMonitor",
    "PrometheusRule",
    "StatefulSet",
    "Deployment",
    "CronJob",
    "Job",
)
"""Kinds in the order in which they are created: what a pod needs comes before the pod."""


def stamp(objects: Sequence[Object], version: str | None) -> None:
    """Annotate every pod template with the version and with the hash of the ConfigMaps it uses."""
    config_maps = {each["metadata"]["name"]: each for each in objects if each["kind"] == "ConfigMap"}
    for each in objects:
        template = kustomize.pod_template(each)
        if template is None:
            continue
        text = json.dumps(template["spec"])
        used = {
            name: config["data"] for name, config in config_maps.items() if re.search(rf"\b{name}\b", text)
        }
        for metadata in (each["metadata"], template["metadata"]):
            notes = metadata.setdefault("annotations", {})
            if version is not None:
                notes[VERSION] = version
        if used:
            canonical = json.dumps(used, sort_keys=True, separators=(",", ":")).encode()
            template["metadata"]["annotations"][CONFIG_HASH] = hashlib.sha256(canonical).hexdigest()[:32]
