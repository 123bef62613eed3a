"""``veen bridge reconcile``: what was exported against what was imported (AGB0 4.7, J1, J2, K1, K2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from veen_bridge.bundles import open_bundles
from veen_bridge.commands.arguments import load_role
from veen_bridge.reconcile.comparison import reconcile as compare
from veen_bridge.reconcile.export_zone import ExportZone
from veen_bridge.reconcile.findings import Reconciliation, Region
from veen_bridge.reconcile.reading import joined, read_bundles, read_source, read_target
from veen_bridge.reconcile.sides import SourceSide
from veen_bridge.reconcile.trace import TracedEvent, Tracer, TraceStep
from veen_bridge.reconcile.zones import Zone, open_live_zone
from veen_bridge.roles.config import OFFLINE, ONLINE, BridgeConfig, Role
from veen_bridge.roles.session import RoleKeys
from veen_cli.frame import (
    Answer,
    CommandFailed,
    Exit,
    Output,
    ViewStore,
    command,
    format_utc,
    passphrase_option,
    plural,
    run_loop,
    verify_hub_export,
)
from veen_core.errors import DecodeError
from veen_core.ids import HubId, Label, LeafHash, StreamId
from veen_core.stream import stream_id

_FILE = click.Path(path_type=Path, dir_okay=False, exists=True)
_FOLDER = click.Path(path_type=Path, file_okay=False, exists=True)


@command(
    "veen bridge reconcile --source z1/bridge.yaml --target z2/bridge.yaml",
    "veen bridge reconcile --target z2/bridge.yaml media/*.veenb --json",
    "veen bridge reconcile --source z1/bridge.yaml --source-export z1-export --target z2/bridge.yaml "
    "--target-export z2-export",
    "veen bridge reconcile --source z1/bridge.yaml --target z2/bridge.yaml --trace MSG_ID",
)
@click.argument("bundles", nargs=-1, type=click.Path(path_type=Path, exists=True), metavar="[BUNDLE…]")
@click.option("--source", type=_FILE, help="Configuration of bridge_online, which names the source hub.")
@click.option(
    "--source-export", type=_FOLDER, help="Export of the whole source hub, read instead of the hub."
)
@click.option("--target", type=_FILE, required=True, help="Configuration of bridge_offline.")
@click.option(
    "--target-export", type=_FOLDER, help="Export of the whole target hub, read instead of the hub."
)
@click.option("--trace", metavar="MSG_ID|SEQ", help="Follow one event from the source zone to its import.")
@click.option("--trace-label", help="With --trace SEQ: the source label, if there are several.")
@click.option(
    "--record",
    "records",
    multiple=True,
    help="With --trace: target stream that may refer to the imported event.",
)
@passphrase_option
def reconcile(
    out: Output,
    *,
    bundles: tuple[Path, ...],
    source: Path | None,
    source_export: Path | None,
    target: Path,
    target_export: Path | None,
    trace: str | None,
    trace_label: str | None,
    records: tuple[str, ...],
    passphrase_file: Path | None,
) -> Answer:
    """Compare what the source zone exported with what the target zone imported.

    The source is bridge/online/log at its hub or in an export, bundle files, or both. The exit code is 0 if
    every exported event was imported exactly once and nothing else was imported, 3 otherwise.
    """
    if source is None and (not bundles or source_export is not None):
        raise click.UsageError("Give --source, or BUNDLE files, or both.")
    run = _Run(
        out=out,
        source=_zone(source, ONLINE, source_export, passphrase_file) if source is not None else None,
        target=_zone(target, OFFLINE, target_export, passphrase_file),
        bundles=bundles,
        records=records,
    )
    result, steps = run_loop(run.run(trace, trace_label))
    if steps is not None:
        found = all(step.found is not False for step in steps[:5])
        data = {"steps": [step.as_json() for step in steps], "complete": found}
        return Answer(data, _trace_lines(steps), Exit.OK if found else Exit.PROTOCOL)
    code = Exit.OK if result.consistent else Exit.PROTOCOL
    return Answer(result.as_json(), _lines(result), code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ZoneFiles:
    """Where the logs of one zone are."""

    config: BridgeConfig
    keys: RoleKeys
    export: Path | None

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Zone]:
        hub = HubId.from_hex(self.config.trust)
        if self.export is not None:
            verify_hub_export(self.export, hub)
            zone = ExportZone(self.export, hub, self.keys.opening)
            zone.check()
            yield zone
            return
        folder = self.config.client / "views" / f"reconcile-{self.config.trust[:16]}"
        with ViewStore(folder) as store:
            async with open_live_zone(self.config, self.keys, store) as live:
                yield live


def _zone(path: Path, role: Role, export: Path | None, passphrase_file: Path | None) -> _ZoneFiles:
    config, keys = load_role(path, passphrase_file)
    config.require(role, "reconcile")
    return _ZoneFiles(config=config, keys=keys, export=export)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """One call of the command."""

    out: Output
    source: _ZoneFiles | None
    target: _ZoneFiles
    bundles: tuple[Path, ...]
    records: tuple[str, ...]

    async def run(
        self, trace: str | None, trace_label: str | None
    ) -> tuple[Reconciliation, tuple[TraceStep, ...] | None]:
        async with AsyncExitStack() as stack:
            with self.out.progress("reading both zones"):
                source = await stack.enter_async_context(self.source.open()) if self.source else None
                target = await stack.enter_async_context(self.target.open())
                audit = await read_source(source) if source is not None else None
                exported = joined(audit, self._files())
                imported = await read_target(target, self._streams())
            result = compare(exported, imported)
            if trace is None:
                return result, None
            tracer = Tracer(
                source=source,
                target=target,
                exported=exported,
                import_streams=self._streams(),
                record_streams=self.records,
            )
            return result, await tracer.trace(_wanted(trace, trace_label, exported))

    def _files(self) -> SourceSide | None:
        if not self.bundles:
            return None
        opened = open_bundles(self.bundles)
        if opened.faults:
            raise opened.faults[0]
        pinned = HubId.from_hex(self.source.config.trust) if self.source is not None else None
        return read_bundles(opened.bundles, pinned, self.target.config.sources)

    def _streams(self) -> tuple[StreamId, ...]:
        return tuple(stream_id(name) for name in self.target.config.streams if "*" not in name)


def _wanted(trace: str, label: str | None, exported: SourceSide) -> TracedEvent:
    """The event that ``--trace`` names: by its original msg_id, or by its position at the source."""
    try:
        if not trace.isdecimal():
            return TracedEvent(msg_id=LeafHash.from_hex(trace))
        found = exported.bundles.values()
        labels = {each.source for each in found if label is None or label == each.stream}
        if label is not None and not labels:
            labels = {each.source for each in found if each.label == Label.from_hex(label)}
    except DecodeError as exc:
        raise click.UsageError(f"--trace and --trace-label: {exc}") from None
    if len(labels) != 1:
        raise CommandFailed(
            f"position {trace} is ambiguous: {len(labels)} source labels were exported",
            Exit.USAGE,
            "name the source stream or label with --trace-label, or give --trace MSG_ID",
        )
    return TracedEvent(source=labels.pop(), seq=int(trace))


def _lines(result: Reconciliation) -> Iterator[str]:
    yield (
        f"{plural(result.exported, 'bundle')} exported, {result.imported} imported, "
        f"{plural(result.failed, 'failed import')} reported"
    )
    for region in result.regions:
        yield from _region(region)
    names = {region.source: region.stream for region in result.regions}
    for finding in result.findings:
        where = f"  bundle {finding.bundle_id.hex()[:16]}" if finding.bundle_id is not None else ""
        if finding.source is not None and (name := names.get(finding.source)) is not None:
            where = f"  {name}{where}"
        span = f"  entries {finding.span.from_seq} to {finding.span.to_seq}" if finding.span else ""
        yield f"{finding.kind:<16}{where}{span}  {finding.detail}"
    yield "consistent" if result.consistent else "NOT consistent"


def _region(region: Region) -> Iterator[str]:
    label = f"label {region.source[1].hex()[:16]}"
    if region.stream is not None:
        label = f"{region.stream} ({label})"
    if region.to_seq < region.from_seq or region.mmr_root is None:
        yield f"{label}: nothing is proven"
    else:
        times = ""
        if region.from_ts is not None and region.to_ts is not None:
            times = f", {format_utc(region.from_ts)} to {format_utc(region.to_ts)}"
        yield f"{label}: entries {region.from_seq} to {region.to_seq} are consistent{times}"
        yield f"  root {region.mmr_root.hex()}"
    for gap in region.gaps:
        yield f"  entries {gap.span.from_seq} to {gap.span.to_seq}: {gap.kind.replace('_', ' ')}"


_MARKS: dict[bool | None, str] = {True: "found  ", False: "MISSING", None: "unknown"}


def _trace_lines(steps: Sequence[TraceStep]) -> Iterator[str]:
    width = max(len(step.what) for step in steps)
    for step in steps:
        yield f"{step.step}  {_MARKS[step.found]}  {step.what:<{width}}  {step.detail}"
