/** Bridges: the bundles that crossed an air gap, by the audit log of one side, with lag and gaps (AGB0 4.6, P6, P7). */
import { el, foreign } from "../../ui/dom.ts";
import { type Bytes, equal, hex } from "../../verify/wire/bytes.ts";
import { plural } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { count, utc } from "../format.ts";
import { fieldsOf } from "../records/record.ts";
import { type RecordEntry, StreamLog } from "../records/stream_log.ts";
import type { Records } from "../records/schema.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, card, empty, hash, type Verdict } from "../widgets.ts";
import { keyBox } from "./key_box.ts";
import { progress } from "./stream_form.ts";

const SIDES = {
  online: { stream: "bridge/online/log", title: "Exports from this hub" },
  offline: { stream: "bridge/offline/log", title: "Imports to this hub" },
} as const;

/** One record of an audit log as a line of the table. */
interface Line {
  readonly entry: RecordEntry;
  readonly bundle: Bytes | null;
  readonly source: string;
  readonly range: string;
  readonly verdict: Verdict;
  readonly state: string;
}

type Bundle = Records["bridge.exported.v1"] | Records["bridge.imported.v1"];

export function bridges(app: App, root: HTMLElement, parts: readonly string[]): Stop {
  const side = parts[0] === "offline" ? SIDES.offline : SIDES.online;
  const links = Object.entries(SIDES).map(([name, { title }]) =>
    el("a", { class: "button", href: linkTo("bridges", name), "aria-current": title === side.title ? "page" : null }, title));
  root.append(
    el("h1", {}, "Bridges"),
    el("p", { class: "lead" }, "Each bundle that left or reached this hub, from the bridge's own sealed log. Give the reader key of that log. "
      + "To compare both sides, run veen bridge reconcile."),
    el("div", { class: "buttons" }, ...links));
  const log = new StreamLog(app, [side.stream]);
  const [state, slot] = [el("div"), el("div")];
  root.append(state, keyBox(app), slot);
  const show = () => {
    const view = log.view.value;
    state.replaceChildren(progress(view));
    const lines = linesOf(view.entries);
    slot.replaceChildren(lines.length === 0 ? empty(`No bundle is recorded in ${side.stream}.`) : table(lines),
      ...(side === SIDES.online ? [lags(app, view.entries)] : []));
  };
  const stops = [log.view.watch(show), app.hubLog.view.watch(show)];
  return () => {
    for (const stop of stops) stop();
    log.stop();
  };
}

function linesOf(entries: readonly RecordEntry[]): Line[] {
  const chains = new Map<string, Bundle>();
  return entries.flatMap((entry) => lineOf(entry, chains) ?? []);
}

function lineOf(entry: RecordEntry, chains: Map<string, Bundle>): Line | undefined {
  const { record } = entry;
  const exported = fieldsOf(record, "bridge.exported.v1");
  const imported = fieldsOf(record, "bridge.imported.v1");
  const bundle = exported ?? imported;
  if (bundle !== undefined) {
    const [verdict, state] = continues(bundle, exported, imported, chains);
    return { entry, bundle: bundle.bundle_id, source: exported?.stream ?? hex(streamOf(exported, imported)), range: rangeOf(bundle), verdict, state };
  }
  const failed = fieldsOf(record, "bridge.import.failed.v1");
  if (failed !== undefined) {
    return { entry, bundle: failed.bundle_id, source: "", range: failed.position === 0n ? "" : `at ${failed.position}`, verdict: "fails",
      state: `refused: ${failed.code}: ${failed.reason}` };
  }
  const gap = fieldsOf(record, "bridge.import.gap.v1");
  if (gap !== undefined) {
    return { entry, bundle: gap.bundle_id, source: "", range: `from ${gap.skipped_from}`, verdict: "open",
      state: `imported by ${gap.operator} although the bundle before it is missing` };
  }
  return undefined;
}

function streamOf(exported: Records["bridge.exported.v1"] | undefined, imported: Records["bridge.imported.v1"] | undefined): Bytes {
  return exported?.stream_id ?? (imported as Records["bridge.imported.v1"]).source_stream_id;
}

const rangeOf = ({ from_seq: from, to_seq: to, events }: Bundle): string =>
  events === 0n ? `heartbeat at ${to}` : `${from} to ${to}`;

/** Compare a bundle with the one before it in its chain: of the same hub, stream and bridge (P6). */
function continues(
  bundle: Bundle, exported: Records["bridge.exported.v1"] | undefined, imported: Records["bridge.imported.v1"] | undefined,
  chains: Map<string, Bundle>,
): [Verdict, string] {
  const bridge = exported?.bridge_id ?? (imported as Records["bridge.imported.v1"]).source_bridge_id;
  const chain = [bundle.source_hub_id, streamOf(exported, imported), bridge].map(hex).join(" ");
  const before = chains.get(chain);
  if (before !== undefined && equal(before.bundle_id, bundle.bundle_id)) return ["holds", "repeats the record before it"];
  chains.set(chain, bundle);
  if (before === undefined) return bundle.from_seq === 1n ? ["holds", "first of its chain"] : ["open", `begins at entry ${bundle.from_seq}`];
  if (!equal(before.bundle_id, bundle.prev_bundle_id)) return ["fails", "gap: does not continue the bundle before it"];
  if (bundle.events > 0n && bundle.from_seq !== before.to_seq + 1n) return ["fails", `gap: entries after ${before.to_seq} are missing`];
  return ["holds", "continues"];
}

function table(lines: readonly Line[]): HTMLElement {
  const rows = [...lines].reverse().map(({ entry, bundle, source, range, verdict, state }) => el("tr", {},
    el("td", {}, el("a", { href: linkTo("message", entry.label, entry.row.seq) }, String(entry.row.seq))),
    el("td", {}, entry.row.receipt === undefined ? "" : utc(Number(entry.row.receipt.hub_ts))),
    el("td", {}, bundle === null ? "" : hash(hex(bundle), 8)),
    el("td", {}, /^[0-9a-f]{64}$/.test(source) ? hash(source, 8) : foreign(source)),
    el("td", {}, range), el("td", {}, badge(verdict, state))));
  const gaps = lines.filter(({ verdict }) => verdict === "fails").length;
  return el("div", {},
    el("p", {}, `${plural(lines.length, "record")}, `, gaps === 0 ? badge("holds", "no gap") : badge("fails", plural(gaps, "gap or refusal", "gaps or refusals"))),
    el("div", { class: "table-scroll", role: "region", "aria-label": "Bundles", tabindex: 0 },
      el("table", {},
        el("thead", {}, el("tr", {}, ...["entry", "recorded (UTC)", "bundle", "stream", "entries", "chain"].map((each) => el("th", { scope: "col" }, each)))),
        el("tbody", {}, ...rows))));
}

/** How far each exported label of this hub has grown beyond its last bundle, by the verified hub log. */
function lags(app: App, entries: readonly RecordEntry[]): HTMLElement {
  const last = new Map<string, Records["bridge.exported.v1"]>();
  for (const { record } of entries) {
    const exported = fieldsOf(record, "bridge.exported.v1");
    if (exported !== undefined) last.set(hex(exported.label), exported);
  }
  const rows = [...last].map(([label, exported]) => {
    const head = app.hubLog.view.value.labels.get(label);
    const behind = head === undefined ? undefined : Math.max(0, Number(head.upto_seq - exported.to_seq));
    return el("tr", {},
      el("td", {}, exported.stream === null ? hash(label, 8) : foreign(exported.stream)),
      el("td", {}, String(exported.to_seq)),
      el("td", {}, behind === undefined ? "not known" : behind === 0 ? badge("holds", "all exported") : badge("open", `${count(behind)} not exported`)));
  });
  if (rows.length === 0) return el("div");
  return card("Not exported yet", el("table", {},
    el("thead", {}, el("tr", {}, ...["stream", "exported up to", "behind the hub"].map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", {}, ...rows)));
}
