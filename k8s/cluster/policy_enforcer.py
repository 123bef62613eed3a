"""NetworkPolicies in the node of ``node.py``, as packet filters: the node's own network plugin enforces none.

The rules are those of the container tests (``k8s/tests/packet_filter.py``). They follow the pods and policies
of the API server within ``POLL_SEC``; connections within a bridge pass them as well.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from packet_filter import CHAIN, Endpoint, rules

POLL_SEC: Final = 0.3
BRIDGED: Final = "/proc/sys/net/bridge/bridge-nf-call-iptables"
"""Whether packet filters see connections between pods of one bridge; each network namespace has its own."""
KINDS: Final = "networkpolicies,pods,namespaces"


class PolicyEnforcer:
    """Keeps the node's packet filters as the policies say, in a thread of its own."""

    def __init__(self, kubectl: Callable[..., str], inside: Callable[..., str]) -> None:
        """``kubectl`` asks the API server, ``inside`` runs a program in the node."""
        self._kubectl, self._inside = kubectl, inside
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._inside(
            "sh", "-ec", f"echo 1 >{BRIDGED}; iptables --wait -N {CHAIN}; iptables -I FORWARD -j {CHAIN}"
        )
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        before = None
        while not self._ended.wait(POLL_SEC):
            found = self._kubectl("get", KINDS, "--all-namespaces", "--output=json", check=False)
            if found and (lines := chain(json.loads(found)["items"])) != before:
                # One transaction: there is no moment without rules.
                self._inside(
                    "sh", "-ec", f"iptables-restore --wait --noflush <<'END'\n{lines}END", check=False
                )
                before = lines


def chain(objects: list[dict[str, Any]]) -> str:
    """Return the rules of these policies and pods, as iptables-restore reads them."""
    of_kind = {kind: [each for each in objects if each["kind"] == kind] for kind in
               ("NetworkPolicy", "Pod", "Namespace")}  # fmt: skip
    pods = [
        Endpoint(each["metadata"]["namespace"], each["metadata"].get("labels", {}), each["status"]["podIP"])
        for each in of_kind["Pod"]
        if each["status"].get("podIP") and each["status"]["phase"] in ("Pending", "Running")
    ]
    namespaces = {
        each["metadata"]["name"]: each["metadata"].get("labels", {}) for each in of_kind["Namespace"]
    }
    found = rules(of_kind["NetworkPolicy"], pods, namespaces)
    return "\n".join(
        ["*filter", f"-F {CHAIN}", *(f"-A {CHAIN} {' '.join(line)}" for line in found), "COMMIT\n"]
    )
