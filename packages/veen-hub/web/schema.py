"""Write the declarations of VEEN for the web pages: wire objects, and the records of all overlays.

Usage: schema.py [--check]. Needs an environment with veen-cli, such as ``.tox/cli/bin/python``. The pages
interpret these tables; no field is declared a second time in TypeScript. The wire objects are in
``src/verify/wire/schema.ts``, the records in ``src/console/records/schema.ts``.
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
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.record import Record

SOURCES = Path(__file__).parent / "src"
WIRE_OUT = SOURCES / "verify" / "wire" / "schema.ts"
RECORDS_OUT = SOURCES / "console" / "records" / "schema.ts"
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


RECORDS_HEAD = """// Made by schema.py from the declarations of veen-overlays; do not edit.
import type { IMPORTED } from "../../verify/wire/schema.ts";

export interface RecordSchema extends ObjectSchema {
  /** The schema id in hex: `payload_hdr.schema` of its messages. */
  readonly id: string;
  /** The overlays that fold it. */
  readonly overlays: readonly string[];
}
type Bytes = Uint8Array<ArrayBuffer>;
"""


class Writer:
    """Collects declared objects and everything that they contain."""

    def __init__(self, known: dict[str, Declared] | None = None) -> None:
        """``known`` are objects that another module declares."""
        self.known = known or {}
        self.borrowed: set[str] = set()
        """The known objects that these contain."""
        self.objects: dict[str, Declared] = {}

    def add(self, codec: Declared) -> str:
        name = codec.build.__name__
        if self.known.get(name) is codec:
            self.borrowed.add(name)
            return name
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

    def interface(self, codec: Declared) -> list[str]:
        """Return the TypeScript fields of an object."""
        return [
            f"  readonly {field.name}: {self.type(field.kind)}{' | null' if field.optional else ''};"
            for field in codec.fields
        ]

    def table(self, codec: Declared) -> list[str]:
        """Return the table of an object, between its braces."""
        layout = "array" if isinstance(codec, ArrayCodec) else "map"
        lines = [
            f'name: {json.dumps(codec.name)}, section: "{codec.section}",',
            f'    layout: "{layout}", fields: [',
        ]
        for field in codec.fields:
            marks = f"{literal(field.optional)}, {literal(field.trailing)}"
            lines.append(f'    ["{field.name}", {literal(field.key)}, {self.kind(field.kind)}, {marks}],')
        return [*lines, "  ] },"]

    def tables(self) -> list[str]:
        """Return the named tables of all objects."""
        lines = []
        for name, codec in self.objects.items():
            first, *rest = self.table(codec)
            lines += [f"  {name}: {{ {first}", *rest]
        return lines

    def interfaces(self) -> list[str]:
        """Return the TypeScript interfaces of all objects."""
        lines = []
        for name, codec in self.objects.items():
            lines += [f"export interface {name} {{", *self.interface(codec), "}"]
        return lines


def wire_module(writer: Writer) -> str:
    """Return the module of the wire objects."""
    lines = [HEAD, *writer.interfaces(), "export interface Objects {"]
    lines += [f"  {name}: {name};" for name in writer.objects]
    lines += ["}", "export type ObjectName = keyof Objects;", ""]
    lines += ["export const SCHEMA: Readonly<Record<ObjectName, ObjectSchema>> = {", *writer.tables()]
    lines += ["};", "", "/** What a file may hold, in the order in which it is tried. */"]
    lines.append("export const KINDS: readonly ObjectName[] = [")
    lines += [f'  "{kind.__name__}",' for kind in KINDS]
    lines.append("];")
    return "\n".join(lines) + "\n"


def records_module(known: dict[str, Declared]) -> str:
    """Return the module of the records, which declares their parts too."""
    writer = Writer(known)
    overlays: dict[type[Record], list[str]] = {}
    for overlay in OVERLAYS.values():
        for shape in (*overlay.schemas, *overlay.exchanged):
            overlays.setdefault(shape, []).append(overlay.name)
    for shape in overlays:
        for field in declared(shape).fields:
            writer.kind(field.kind)
    head = RECORDS_HEAD.replace("IMPORTED", ", ".join(sorted({"ObjectSchema", *writer.borrowed})))
    lines = [head, *writer.interfaces(), "/** The fields of each record, by its name. */"]
    lines.append("export interface Records {")
    forms: dict[str, list[str]] = {}
    for shape in overlays:
        fields = (line.strip() for line in writer.interface(declared(shape)))
        forms.setdefault(shape.NAME, []).append(f"{{ {' '.join(fields)} }}")
    lines += [f"  {json.dumps(name)}: {' | '.join(found)};" for name, found in forms.items()]
    lines += ["}", "export type RecordName = keyof Records;", ""]
    lines += ["export const PARTS: Readonly<Record<string, ObjectSchema>> = {", *writer.tables(), "};", ""]
    lines.append("export const RECORDS: readonly RecordSchema[] = [")
    for shape, names in overlays.items():
        first, *rest = writer.table(declared(shape))
        lines += [f'  {{ id: "{shape.SCHEMA.hex()}", overlays: {json.dumps(names)}, {first}', *rest]
    lines.append("];")
    return "\n".join(lines) + "\n"


def declared(shape: type[Wire]) -> Declared:
    assert isinstance(shape.codec, Declared)
    return shape.codec


def literal(value: object) -> str:
    return f"{value}n" if type(value) is int else json.dumps(value)


def main(arguments: list[str]) -> None:
    writer = Writer()
    for kind in (*KINDS, *OTHERS):
        writer.add(declared(kind))
    made = {WIRE_OUT: wire_module(writer), RECORDS_OUT: records_module(writer.objects)}
    for path, text in made.items():
        if arguments != ["--check"]:
            path.write_text(text)
        elif path.read_text() != text:
            sys.exit(f"{path} is out of date: run `bin/test -e web -- build`")


if __name__ == "__main__":
    main(sys.argv[1:])
