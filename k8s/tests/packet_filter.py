"""NetworkPolicies as packet filters of the host: what a CNI plugin with policies does in a cluster.

A pod that a policy selects accepts new connections only from the pods and on the ports of the policy's rules.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

CHAIN: Final = "VEEN-POLICY"


@dataclass(frozen=True)
class Endpoint:
    """A pod as a policy sees it."""

    namespace: str
    labels: Mapping[str, str]
    ip: str


def _matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    for rule in selector.get("matchExpressions", []):
        if rule["operator"] != "In":
            raise NotImplementedError(rule["operator"])
        if labels.get(rule["key"]) not in rule["values"]:
            return False
    return True


def _is_peer(
    peer: Mapping[str, Any], policy_namespace: str, pod: Endpoint, namespaces: Mapping[str, Mapping[str, str]]
) -> bool:
    if "namespaceSelector" in peer:
        if not _matches(peer["namespaceSelector"], namespaces.get(pod.namespace, {})):
            return False
    elif pod.namespace != policy_namespace:
        return False
    return _matches(peer.get("podSelector", {}), pod.labels)


def rules(
    policies: Iterable[Mapping[str, Any]],
    pods: Sequence[Endpoint],
    namespaces: Mapping[str, Mapping[str, str]],
) -> Iterator[list[str]]:
    """Yield the rules of the chain, in order: what is accepted, then a drop for each selected pod."""
    selected: set[str] = set()
    for policy in policies:
        where, spec = policy["metadata"]["namespace"], policy["spec"]
        targets = [
            pod for pod in pods if pod.namespace == where and _matches(spec["podSelector"], pod.labels)
        ]
        selected |= {pod.ip for pod in targets}
        for target in targets:
            for rule in spec["ingress"]:
                sources = [
                    pod.ip
                    for pod in pods
                    if any(_is_peer(peer, where, pod, namespaces) for peer in rule["from"])
                ]
                for source in sources:
                    for port in rule["ports"]:
                        yield [
                            "-s",
                            source,
                            "-d",
                            target.ip,
                            "-p",
                            "tcp",
                            "--dport",
                            str(port["port"]),
                            "-j",
                            "ACCEPT",
                        ]
    for ip in sorted(selected):
        yield ["-d", ip, "-m", "conntrack", "--ctstate", "NEW", "-j", "DROP"]


def _iptables(*arguments: str) -> None:
    subprocess.run(["iptables", "--wait", *arguments], check=True, capture_output=True)


@contextmanager
def enforced(lines: Iterable[list[str]]) -> Iterator[None]:
    """Enforce the rules inside this block, also between pods of one bridge."""
    setting = "/proc/sys/net/bridge/bridge-nf-call-iptables"
    with open(setting, encoding="ascii") as file:
        before = file.read()
    with open(setting, "w", encoding="ascii") as file:
        file.write("1")
    _iptables("-N", CHAIN)
    try:
        _iptables("-I", "FORWARD", "-j", CHAIN)
        for line in lines:
            _iptables("-A", CHAIN, *line)
        yield
    finally:
        _iptables("-D", "FORWARD", "-j", CHAIN)
        _iptables("-F", CHAIN)
        _iptables("-X", CHAIN)
        with open(setting, "w", encoding="ascii") as file:
            file.write(before)
