"""The part of Kustomize that VEEN's manifests use, for people without Kustomize.

A kustomization names resources, components, a namespace, labels, images and JSON patches (RFC 6902). Each
rule here does what ``kubectl kustomize`` does; a test compares both. Anything else is refused.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from veen_core.errors import ConfigError

Object = dict[str, Any]
"""One Kubernetes object."""

CLUSTER_KINDS: Final = frozenset({"Namespace", "ClusterRole", "ClusterRoleBinding"})
"""Kinds without a namespace."""
LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster than the loader in Python, where PyYAML was built with libyaml."""
KEYS: Final = frozenset(
    {"apiVersion", "kind", "resources", "components", "namespace", "labels", "images", "patches"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """The registry path and tag of the image that the manifests call ``name``."""

    name: str
    new_name: str
    new_tag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """Operations of RFC 6902 on every object of a kind and name."""

    kind: str
    name: str
    operations: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kustomization:
    """What to read, and what to change in it, in this order."""

    resources: tuple[Path, ...] = ()
    components: tuple[Path, ...] = ()
    patches: tuple[Patch, ...] = ()
    namespace: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    images: tuple[Image, ...] = ()


def read(folder: Path) -> Kustomization:
    """Read ``kustomization.yaml`` of a folder."""
    path = folder / "kustomization.yaml"
    settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    if unknown := sorted(set(settings) - KEYS):
        raise ConfigError(f"{path}: {', '.join(unknown)} is not supported", action="use kubectl kustomize")
    labels: dict[str, str] = {}
    for entry in settings.get("labels", []):
        if entry.get("includeSelectors") or not entry.get("includeTemplates"):
            raise ConfigError(f"{path}: labels must have includeTemplates and not includeSelectors")
        labels |= entry["pairs"]
    return Kustomization(
        resources=tuple(folder / name for name in settings.get("resources", [])),
        components=tuple(folder / name for name in settings.get("components", [])),
        patches=tuple(_patch(entry, path) for entry in settings.get("patches", [])),
        namespace=settings.get("namespace"),
        labels=labels,
        images=tuple(
            Image(name=entry["name"], new_name=entry["newName"], new_tag=str(entry["newTag"]))
            for entry in settings.get("images", [])
        ),
    )


def _patch(entry: Mapping[str, Any], path: Path) -> Patch:
    target = entry.get("target", {})
    if set(target) != {"kind", "name"} or not isinstance(entry.get("patch"), str):
        raise ConfigError(f"{path}: a patch needs a target with kind and name, and its operations as text")
    return Patch(kind=target["kind"], name=target["name"], operations=tuple(yaml.safe_load(entry["patch"])))


def build(kustomization: Kustomization) -> list[Object]:
    """Return the objects of a kustomization."""
    objects = [found for path in kustomization.resources for found in _load(path)]
    for folder in kustomization.components:
        component = read(folder)
        objects += [found for path in component.resources for found in _load(path)]
        objects = _change(objects, component)
    return _change(objects, kustomization)


def _load(path: Path) -> list[Object]:
    if path.is_dir():
        return build(read(path))
    with path.open(encoding="utf-8") as file:
        return [found for found in yaml.load_all(file, LOADER) if found]


def _change(objects: Sequence[Object], kustomization: Kustomization) -> list[Object]:
    changed = [copy.deepcopy(each) for each in objects]
    for each in changed:
        for patch in kustomization.patches:
            if (each["kind"], each["metadata"]["name"]) == (patch.kind, patch.name):
                for operation in patch.operations:
                    _apply(each, operation)
        if kustomization.namespace is not None:
            _set_namespace(each, kustomization.namespace)
        for metadata in metadata_of(each) if kustomization.labels else ():
            metadata["labels"] = {**metadata.get("labels", {}), **kustomization.labels}
        for container in containers_of(each):
            for image in kustomization.images:
                if container["image"].partition(":")[0] == image.name:
                    container["image"] = f"{image.new_name}:{image.new_tag}"
    return changed


def _set_namespace(each: Object, namespace: str) -> None:
    if each["kind"] == "Namespace":
        each["metadata"]["name"] = namespace
    elif each["kind"] not in CLUSTER_KINDS:
        each["metadata"]["namespace"] = namespace


def pod_template(each: Object) -> Object | None:
    """Return the pod template of a workload, or None."""
    spec = each.get("spec", {})
    if each["kind"] == "CronJob":
        spec = spec["jobTemplate"]["spec"]
    found = spec.get("template") if isinstance(spec, dict) else None
    return found if isinstance(found, dict) else None


def metadata_of(each: Object) -> Iterator[Object]:
    """Yield the metadata of an object, of its job template and of its pod template."""
    yield each["metadata"]
    if each["kind"] == "CronJob":
        yield each["spec"]["jobTemplate"].setdefault("metadata", {})
    if (template := pod_template(each)) is not None:
        yield template.setdefault("metadata", {})


def containers_of(each: Object) -> list[Object]:
    """Return the containers of a workload, those that run before the others first."""
    spec = (pod_template(each) or {}).get("spec", {})
    return [*spec.get("initContainers", []), *spec.get("containers", [])]


def _apply(each: Object, operation: Mapping[str, Any]) -> None:
    """Apply one operation of RFC 6902: add, replace or remove."""
    *parents, last = (part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:])
    target: Any = each
    for part in parents:
        target = target[int(part)] if isinstance(target, list) else target[part]
    value = copy.deepcopy(operation.get("value"))
    match operation["op"], target:
        case "add", list() if last == "-":
            target.append(value)
        case "add", list():
            target.insert(int(last), value)
        case "replace", list():
            target[int(last)] = value
        case "remove", list():
            del target[int(last)]
        case (("add" | "replace"), dict()):
            target[last] = value
        case "remove", dict():
            del target[last]
        case _:
            raise ConfigError(f"patch {operation['op']} {operation['path']} is not supported")
