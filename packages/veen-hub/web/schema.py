"""Write ``src/verify/wire/schema.ts``: the wire objects of VEEN for the web pages, from their declarations.

Usage: schema.py [--check]. Needs an environment with veen-cli, such as ``.tox/cli/bin/python``. The pages
interpret these tables; no field is declared a second time in TypeScript.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from veen_cli.evidence.recognition.wire_kinds import KINDS
from veen_core import kinds
from veen_core.attached import Attached
from veen_core.bundle.part import PartIndex, PartTrailer
from veen_core.codec import ArrayCodec, Declared
from veen_core.hub_export import HubHead, HubManifest
from veen_core.payload import PayloadHeader
from veen_core.wire import Wire

OUT = Path(__file__).parent / "src" / "verify" / "wire" / "schema.ts"
OTHERS: tuple[type[Wire], ...] = (PartTrailer, PartIndex, HubHead, HubManifest, PayloadHeader, Attached)
"""Objects that no file holds alone, and that the pages read inside others."""

HEAD = """// Made by schema.py from the declarations of veen-core; do not edit.

export type Fault = 0 | 1 | 2;
/** How one field is written: see `codec.ts`, which reads each of these. */
export type Kind =
  | "uint" | "int" | "text" | "bytes" | "bool" | "any"
  | readonly ["fixed", string, number]
  | readonly ["one", readonly (bigint | string)[], Fault]
  | readonly ["word", string, readonly string[]]
  | readonly ["list", Kind, number]
  | readonly ["null", Kind]
  | readonly ["object", string];
/** Name, key (position in an array), kind; then whether it is optional, and whether it may be left off. */
export type FieldSchema = readonly [string, bigint | string, Kind, boolean, boolean];
export interface ObjectSchema {
  readonly name: string;
  readonly section: string;
  readonly layout: "array" | "map";
  readonly fields: readonly FieldSchema[];
}
type Bytes = Uint8Array<ArrayBuffer>;
"""


class Writer:
    """Collects wire objects and everything that they contain."""

    def __init__(self) -> None:
        self.objects: dict[str, Declared] = {}

    def add(self, codec: Declared) -> str:
        name = codec.build.__name__
        if self.objects.setdefault(name, codec) is not codec:
            raise SystemExit(f"two wire objects are named {name}")
        for field in codec.fields:
            self.kind(field.kind)
        return name

    def kind(self, kind: Any) -> str:
        """Return the kind as a TypeScript value."""
        match kind:
            case kinds.Uint():
                return '"uint"'
            case kinds.Int():
                return '"int"'
            case kinds.AnyValue():
                return '"any"'
            case kinds.Bytes():
                return '"bytes"'
            case kinds.Scalar():
                return '"text"' if kind.type is str else '"bool"'
            case kinds.Fixed():
                return f'["fixed", "{kind.type.__name__}", {kind.size}]'
            case kinds.OneOf():
                return f'["one", [{", ".join(map(literal, kind.allowed))}], {int(kind.fault)}]'
            case kinds.WordOf():
                words = json.dumps([str(word) for word in kind.type])
                return f'["word", "{kind.type.__name__}", {words}]'
            case kinds.ListOf():
                return f'["list", {self.kind(kind.kind)}, {kind.least}]'
            case kinds.Nullable():
                return f'["null", {self.kind(kind.kind)}]'
            case Declared():
                return f'["object", "{self.add(kind)}"]'
        raise SystemExit(f"no TypeScript form for {kind!r}")

    def type(self, kind: Any) -> str:
        """Return the TypeScript type of the values of a kind."""
        match kind:
            case kinds.Uint() | kinds.Int():
                return "bigint"
            case kinds.AnyValue():
                return "unknown"
            case kinds.Bytes() | kinds.Fixed():
                return "Bytes"
            case kinds.Scalar():
                return "string" if kind.type is str else "boolean"
            case kinds.OneOf():
                return " | ".join(map(literal, kind.allowed))
            case kinds.WordOf():
                return " | ".join(json.dumps(str(word)) for word in kind.type)
            case kinds.ListOf():
                return f"readonly ({self.type(kind.kind)})[]"
            case kinds.Nullable():
                return f"{self.type(kind.kind)} | null"
            case Declared():
                return kind.build.__name__
        raise SystemExit(f"no TypeScript type for {kind!r}")

    def render(self) -> str:
        lines = [HEAD]
        for name, codec in self.objects.items():
            lines.append(f"export interface {name} {{")
            for field in codec.fields:
                absent = " | null" if field.optional else ""
                lines.append(f"  readonly {field.name}: {self.type(field.kind)}{absent};")
            lines.append("}")
        lines.append("export interface Objects {")
        lines += [f"  {name}: {name};" for name in self.objects]
        lines += ["}", "export type ObjectName = keyof Objects;", ""]
        lines.append("export const SCHEMA: Readonly<Record<ObjectName, ObjectSchema>> = {")
        for name, codec in self.objects.items():
            layout = "array" if isinstance(codec, ArrayCodec) else "map"
            lines.append(f'  {name}: {{ name: {json.dumps(codec.name)}, section: "{codec.section}",')
            lines.append(f'    layout: "{layout}", fields: [')
            for field in codec.fields:
                marks = f"{literal(field.optional)}, {literal(field.trailing)}"
                key = literal(field.key)
                lines.append(f'    ["{field.name}", {key}, {self.kind(field.kind)}, {marks}],')
            lines.append("  ] },")
        lines += ["};", "", "/** What a file may hold, in the order in which it is tried. */"]
        lines.append("export const KINDS: readonly ObjectName[] = [")
        lines += [f'  "{kind.__name__}",' for kind in KINDS]
        lines.append("];")
        return "\n".join(lines) + "\n"


def literal(value: object) -> str:
    return f"{value}n" if type(value) is int else json.dumps(value)


def main(arguments: list[str]) -> None:
    writer = Writer()
    for kind in (*KINDS, *OTHERS):
        assert isinstance(kind.codec, Declared)
        writer.add(kind.codec)
    made = writer.render()
    if arguments == ["--check"]:
        if OUT.read_text() != made:
            sys.exit(f"{OUT} is out of date: run schema.py")
        return
    OUT.write_text(made)


if __name__ == "__main__":
    main(sys.argv[1:])
