"""Flame graphs in one SVG file without scripts: callers above, callees below, widths in proportion to time.

Each rectangle shows its name and time in the browser's tooltip. Its colour is the stage that most of its time
belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from veen_selftest.perf.profile.stages import STAGES
from veen_selftest.runner.load_profile import UNATTRIBUTED

WIDTH: Final = 1_600
ROW: Final = 18
MARGIN: Final = 10
LETTER: Final = 6.6
"""Width of a letter in the font below, in pixels."""
MIN_WIDTH: Final = 0.5
"""Narrower rectangles are left out."""
COLOURS: Final = {stage: f"hsl({at * 360 // len(STAGES)}, 55%, 72%)" for at, stage in enumerate(STAGES)} | {
    UNATTRIBUTED: "hsl(0, 0%, 75%)"
}


@dataclass(slots=True)
class Node:
    """A frame below its callers: time by stage, its callees included."""

    name: str
    stages: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    callees: dict[str, Node] = field(default_factory=dict)

    @property
    def time(self) -> float:
        return sum(self.stages.values())

    @property
    def depth(self) -> int:
        return 1 + max((callee.depth for callee in self.callees.values()), default=0)

    def callee(self, name: str) -> Node:
        if name not in self.callees:
            self.callees[name] = Node(name)
        return self.callees[name]


class FlameGraph:
    """Collects times by load, process, thread and timed calls, and draws them."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._loads: list[Node] = []

    def begin(self, load: str) -> None:
        """Begin the graph of another load, below those before."""
        self._loads.append(Node(load))

    def add(self, path: tuple[str, ...], stage: str, time: float) -> None:
        """Add time of its own to the last frame of a path, which begins with the process."""
        node = self._loads[-1]
        node.stages[stage] += time
        for name in path:
            node = node.callee(name)
            node.stages[stage] += time

    def svg(self) -> str:
        """Return the file."""
        height = MARGIN + 2 * ROW
        parts = list(self._legend())
        for load in self._loads:
            parts += self._frames(load, MARGIN, height, (WIDTH - 2 * MARGIN) / (load.time or 1), load.time)
            height += load.depth * ROW + 2 * ROW
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" font-family="monospace" font-size="11">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n'
        )
        return head + "\n".join(parts) + "\n</svg>\n"

    def _legend(self) -> Iterator[str]:
        left = float(MARGIN)
        for stage, colour in COLOURS.items():
            yield f'<rect x="{left}" y="{MARGIN}" width="12" height="12" fill="{colour}"/>'
            yield f'<text x="{left + 16}" y="{MARGIN + 10}">{stage}</text>'
            left += 28 + LETTER * len(stage)

    def _frames(self, node: Node, left: float, top: int, scale: float, whole: float) -> Iterator[str]:
        width = node.time * scale
        if width < MIN_WIDTH:
            return
        name, colour = escape(node.name), COLOURS[max(node.stages, key=node.stages.__getitem__)]
        about = f"{name}: {node.time:.1f} {self._unit}, {node.time / (whole or 1):.1%}"
        room = int((width - 4) / LETTER)
        shown = node.name if len(node.name) <= room else node.name.rpartition(".")[2]
        label = f'<text x="{left + 2:.1f}" y="{top + 13}">{escape(shown[:room])}</text>' if room > 2 else ""
        yield (
            f'<g><title>{about}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{ROW - 1}" fill="{colour}"/>{label}</g>'
        )
        for callee in sorted(node.callees.values(), key=lambda each: each.name):
            yield from self._frames(callee, left, top + ROW, scale, whole)
            left += callee.time * scale
