"""Write the parts of the documentation that are derived from the code; ``--check`` only compares them.

    python docs/generate.py [--check]

A generated part lies between ``<!-- generated: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from veen_core import api, handover, hub_log, status
from veen_core.codec import ArrayCodec
from veen_core.rejection import HTTP_STATUS, TABLE
from veen_core.wire import Wire
from veen_hub.ops.config import console, discovery, file_drop, h3, hub_config, nats, sections
from veen_hub.ops.config import hub_log as hub_log_section
from veen_hub.web import verifier_page as verifier_page_module
from veen_hub.witness import config as witness_config
from veen_overlays.fold.registry import OVERLAYS
from veen_overlays.schema.reference import reference

HERE = Path(__file__).parent


def verifier_page() -> str:
    """Return the size and hash of the verifier page."""
    size = len(verifier_page_module.verifier_page())
    return f"```text\n{verifier_page_module.verifier_page_sha256()}  verify.html  ({size:,} bytes)\n```"


def envelopes() -> str:
    kinds = [
        kind
        for module in (api, status, handover, hub_log)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, Wire) and kind.__module__ == module.__name__
    ]
    return "\n".join(envelope(kind) for kind in kinds)


def envelope(kind: type[Wire]) -> str:
    codec = kind.codec
    rows = [
        f"| {field.key} | `{field.name}` | {field.kind.describe()} | {'optional' if field.optional else ''} |"
        for field in codec.fields
    ]
    section = f"§{codec.section}" if codec.section[0].isdecimal() else codec.section
    title = f"### {codec.name} ({section})"
    place = "position" if isinstance(codec, ArrayCodec) else "key"
    return "\n".join([title, "", f"| {place} | name | what | |", "|---|---|---|---|", *rows, ""])


def errors() -> str:
    rows = [f"| `{code.value}` | {HTTP_STATUS[code]} |" for code in HTTP_STATUS]
    return "\n".join(["| code | HTTP |", "|---|---|", *rows, ""])


def rejections() -> str:
    rows = [f"| {row.stage.value} | `{row.code.value}` | `{row.detail}` | {row.means} |" for row in TABLE]
    return "\n".join(["| stage | code | detail | means |", "|---|---|---|---|", *rows, ""])


def settings() -> str:
    """Return the settings of hub.yaml, from their declarations and the docstrings below them."""
    modules = (hub_config, sections, discovery, console, h3, nats, file_drop, hub_log_section)
    return "\n".join(section(declarations(*modules), "HubConfig", "", {}))


def witness_settings() -> str:
    """Return the settings of witness.yaml."""
    return "\n".join(section(declarations(witness_config), "WitnessConfig", "", {}))


def declarations(*modules: ModuleType) -> dict[str, ast.ClassDef]:
    """Return the classes of the settings by name."""
    return {
        node.name: node
        for module in modules
        for node in ast.parse(inspect.getsource(module)).body
        if isinstance(node, ast.ClassDef) and node.decorator_list
    }


def section(
    declared: dict[str, ast.ClassDef], name: str, key: str, described: dict[str, str]
) -> Iterator[str]:
    """Yield one mapping of the file, then its nested mappings; a type used twice is described once."""
    node = declared[name]
    nested: list[tuple[str, str]] = []
    rows: list[str] = []
    for at, line in enumerate(node.body):
        if not isinstance(line, ast.AnnAssign) or not isinstance(line.target, ast.Name):
            continue
        kind = ast.unparse(line.annotation)
        below = f"{key}{line.target.id}"
        named = next((known for known in declared if re.search(rf"\b{known}\b", kind)), None)
        if named is not None:
            each = "each " if kind.startswith("Mapping") else ""
            nested_in = (
                f"{below}.<name>." if each else f"{below}[]." if kind.startswith("tuple") else f"{below}."
            )
            like = described.setdefault(named, below)
            rows.append(f"| `{below}` | | {'below' if like == below else f'{each}as `{like}`'} |")
            if described[named] == below:
                nested.append((named, nested_in))
            continue
        choice = re.match(r"Literal\[(.*)\]", kind)
        words = [f"One of {choice[1].replace(chr(39), '`')}."] if choice else []
        words.append(docstring_after(node.body, at))
        rows.append(f"| `{below}` | {default_of(line)} | {' '.join(filter(None, words))} |")
    yield f"### {key.rstrip('.') or 'Top level'}\n"
    if key:
        yield f"{ast.get_docstring(node)}\n".replace("``", "`")
    yield "\n".join(["| setting | default | |", "|---|---|---|", *rows, ""])
    for inner, prefix in nested:
        yield from section(declared, inner, prefix, described)


def default_of(line: ast.AnnAssign) -> str:
    if line.value is None:
        return "must be given"
    text = ast.unparse(line.value)
    if "default_factory" in text or text in {"()", "None"}:
        return "none"
    value = re.sub(r"^Path\((.*)\)$", r"\1", text).strip("'")
    return f"`{value.lower() if value in {'True', 'False'} else value}`" if value else "empty"


def docstring_after(body: list[ast.stmt], at: int) -> str:
    """Return the docstring below a setting, or an empty string."""
    after = body[at + 1] if at + 1 < len(body) else None
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
        return " ".join(str(after.value.value).split()).replace("``", "`").replace("|", "\\|")
    return ""


PARTS: dict[str, Callable[[], str]] = {
    "records": lambda: reference(OVERLAYS.values()),
    "envelopes": envelopes,
    "errors": errors,
    "rejections": rejections,
    "settings": settings,
    "witness_settings": witness_settings,
    "verifier_page": verifier_page,
}


def regenerate(text: str) -> str:
    """Return the page with every generated part replaced by what the code says now."""
    return re.sub(
        r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)",
        lambda found: f"{found[1]}\n{PARTS[found[2]]()}\n{found[3]}",
        text,
        flags=re.DOTALL,
    )


def index_differs() -> bool:
    """Return whether the index lists other pages than the navigation, or in another order."""
    navigation = (HERE.parent / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = [page for page in re.findall(r"([\w/.-]+\.md)", navigation) if page != "index.md"]
    inside = re.compile(r"(reference/cli|adr)/")  # the index names the first page of each
    wanted = [page for page in listed if not inside.match(page) or page.endswith(("/index.md", "README.md"))]
    index = (HERE / "index.md").read_text(encoding="utf-8")
    return re.findall(r"\]\(([\w/.-]+\.md)", index) != wanted


def main(arguments: list[str]) -> int:
    stale = 0
    if index_differs():
        print("index.md and the navigation in mkdocs.yml list other pages, or in another order")
        stale = 1
    for page in sorted(HERE.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := regenerate(text)) == text:
            continue
        if "--check" in arguments:
            print(f"{page.relative_to(HERE)} is out of date: run `python docs/generate.py`")
            stale = 1
        else:
            page.write_text(new, encoding="utf-8")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
