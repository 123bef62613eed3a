/** Operations and services of a stream: what led to what, calls with their replies, and descriptors (spec-3, RPC0, spec-5). */
import { el, foreign, foreignLines } from "../../ui/dom.ts";
import { type Bytes, hex } from "../../verify/wire/bytes.ts";
import { plural } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { count, short, utc } from "../format.ts";
import { bodyText } from "../message_body.ts";
import { type Call, callsOf } from "../records/calls.ts";
import { causalTree, type OperationNode } from "../records/causality.ts";
import { type Described, descriptorsOf } from "../records/descriptors.ts";
import { eventsOf, messagesOf } from "../records/folded_events.ts";
import { type Register, registersOf } from "../records/registers.ts";
import { type RecordEntry, StreamLog } from "../records/stream_log.ts";
import { type Wallet, walletsOf } from "../records/wallets.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, card, empty, hash } from "../widgets.ts";
import { keyBox } from "./key_box.ts";
import { progress, streamForm } from "./stream_form.ts";

/** Rows of one table; the newest are shown. */
const MAX_SHOWN = 500;
/** Levels of operations that are indented. */
const MAX_INDENT = 12;

export function operations(app: App, root: HTMLElement, parts: readonly string[]): Stop {
  const [name = ""] = parts;
  root.append(
    el("h1", {}, "Operations and services"),
    el("p", { class: "lead" }, "The typed records of a stream: operations and what they led to, calls and their replies, services and hubs that "
      + "were advertised. Every record is in the verified log. Whether an operation "
      + "was allowed is decided by its overlay: ask veen op, or veen disc."),
    streamForm("operations", name, "disc.services.v1"));
  if (name === "") {
    root.append(empty("Open a stream by its name."));
    return () => undefined;
  }
  const log = new StreamLog(app, [name]);
  const [state, slot, detail] = [el("div"), el("div"), el("div", { class: "token-detail", "aria-live": "polite" })];
  root.append(state, keyBox(app), slot, detail);
  const open = (entry: RecordEntry) => {
    detail.replaceChildren(describe(entry));
    detail.scrollIntoView({ block: "nearest" });
  };
  const stop = log.view.watch((view) => {
    state.replaceChildren(progress(view), unread(view.entries));
    slot.replaceChildren(...[
      operationTable(causalTree(view.entries), open),
      callTable(callsOf(view.entries), open),
      descriptorTable(descriptorsOf(view.entries), app.trust.newestHubTs, open),
      ...folds(view.entries),
    ].filter((each) => each !== undefined));
    if (slot.childElementCount === 0 && view.isCaughtUp) slot.replaceChildren(empty("No operation, call, descriptor, wallet or register was opened."));
  });
  return () => {
    stop();
    log.stop();
  };
}

/** Wallets and registers: states that follow from the stream's events, as far as they were opened. */
function folds(entries: readonly RecordEntry[]): (HTMLElement | undefined)[] {
  const events = eventsOf(messagesOf(entries));
  const unopened = entries.filter(({ opened, row }) => opened === undefined && row.msg !== undefined).length;
  const note = unopened === 0 ? "Folded in this page from all entries of the stream."
    : `Folded in this page without ${plural(unopened, "entry", "entries")} that did not open: the state may be another.`;
  return [walletTable([...walletsOf(events)], note), registerTable(registersOf(events), note)];
}

function walletTable(wallets: readonly (readonly [string, Wallet])[], note: string): HTMLElement | undefined {
  return tableOf("Wallets", ["wallet_id", "balance", "daily limit", "spent that day", "state"], wallets, ([id, wallet]) => el("tr", {},
    el("td", {}, hash(id, 12)), el("td", {}, count(wallet.balance)),
    el("td", {}, wallet.daily_limit === null ? "none" : count(wallet.daily_limit)),
    el("td", {}, wallet.daily_limit === null ? "" : count(wallet.pending_daily_spent)),
    el("td", {}, wallet.closed ? "closed" : !wallet.exists ? "never opened" : wallet.frozen ? "frozen" : "open")),
  `${note} Whether each event was allowed is checked by veen wallet verify.`);
}

function registerTable(registers: readonly Register[], note: string): HTMLElement | undefined {
  return tableOf("Registers", ["key", "value", "time (UTC)"], registers, ({ key, value, ts }) => el("tr", {},
    el("td", {}, foreign(bodyText(key))), el("td", {}, foreign(bodyText(value))), el("td", {}, utc(Number(ts)))), note);
}

/** Messages that opened and are not valid records are counted, and never silently absent (core §11.1). */
function unread(entries: readonly RecordEntry[]): HTMLElement {
  const broken = entries.filter(({ why }) => why !== "").length;
  const foreignOnes = entries.filter(({ opened, record, why }) => opened !== undefined && record === undefined && why === "").length;
  return el("p", { class: "quiet" }, `${plural(broken, "invalid record")}, ${plural(foreignOnes, "message")} of other schemas.`);
}

/** A table of items; only the rows that are shown are made. */
function tableOf<T>(
  title: string, heads: readonly string[], items: readonly T[], render: (item: T) => HTMLElement, note = "",
): HTMLElement | undefined {
  if (items.length === 0) return undefined;
  return card(`${title}: ${items.length}`, note === "" ? null : el("p", { class: "quiet" }, note),
    el("div", { class: "table-scroll", role: "region", "aria-label": title, tabindex: 0 }, el("table", {},
      el("thead", {}, el("tr", {}, ...heads.map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, ...items.slice(0, MAX_SHOWN).map(render)))),
    items.length > MAX_SHOWN ? el("p", { class: "quiet" }, `${MAX_SHOWN} of them are shown.`) : null);
}

function seqButton(entry: RecordEntry, open: (entry: RecordEntry) => void): HTMLElement {
  return el("button", { type: "button", class: "small", onclick: () => open(entry) }, String(entry.row.seq));
}

const timeOf = ({ row }: RecordEntry): string => (row.receipt === undefined ? "" : utc(Number(row.receipt.hub_ts)));
const writerOf = ({ row }: RecordEntry): HTMLElement => hash(hex(row.msg?.client_id as Bytes), 8);

/** Operations, each below the one that led to it. */
function operationTable(roots: readonly OperationNode[], open: (entry: RecordEntry) => void): HTMLElement | undefined {
  const flat: [OperationNode, number][] = [];
  const waiting = roots.map((node): [OperationNode, number] => [node, 0]).reverse();
  for (let next = waiting.pop(); next !== undefined; next = waiting.pop()) {
    flat.push(next);
    for (const child of [...next[0].children].reverse()) waiting.push([child, next[1] + 1]);
  }
  return tableOf("Operations", ["entry", "time (UTC)", "operation", "operation_id", "written by", "of another stream"], flat, ([node, depth]) => {
    const indent = depth === 0 ? "" : `${"  ".repeat(Math.min(depth, MAX_INDENT))}↳ `;
    return el("tr", {}, el("td", {}, seqButton(node.entry, open)), el("td", {}, timeOf(node.entry)),
      el("td", { class: "tree" }, indent, foreign(node.name)), el("td", {}, hash(node.operationId, 8)), el("td", {}, writerOf(node.entry)),
      el("td", {}, node.missingParents.length === 0 ? "" : `follows ${node.missingParents.map((each) => short(each)).join(", ")}, not in this stream`));
  });
}

function callTable(calls: readonly Call[], open: (entry: RecordEntry) => void): HTMLElement | undefined {
  return tableOf("Calls", ["entry", "time (UTC)", "method", "client", "reply", "state"], [...calls].reverse(), (call) => el("tr", {},
    el("td", {}, seqButton(call.request, open)), el("td", {}, timeOf(call.request)), el("td", {}, foreign(call.method)),
    el("td", {}, writerOf(call.request)), el("td", {}, call.reply === undefined ? "" : seqButton(call.reply, open)),
    el("td", {}, call.reply === undefined ? badge("open", "no reply in this stream")
      : call.error === undefined ? badge("open", "replied") : badge("open", `failed: ${call.error}`))));
}

function descriptorTable(found: readonly Described[], now: bigint, open: (entry: RecordEntry) => void): HTMLElement | undefined {
  return tableOf("Services, hubs and overlays", ["entry", "kind", "name", "id", "published by", "state"], found, (each) => el("tr", {},
    el("td", {}, seqButton(each.entry, open)), el("td", {}, each.kind), el("td", {}, foreign(each.name)), el("td", {}, hash(each.id, 8)),
    el("td", {}, writerOf(each.entry)),
    el("td", {}, each.isRetired ? badge("open", "withdrawn") : each.end <= now ? badge("open", `expired ${utc(Number(each.end))}`)
      : badge("open", `advertised until ${utc(Number(each.end))}`))));
}

function describe({ row, label, record, opened }: RecordEntry): HTMLElement {
  return card(record?.schema.name ?? "Message",
    el("p", { class: "quiet" }, record === undefined ? "" : `${record.schema.section} · ${record.schema.overlays.join(", ")}`),
    el("pre", { class: "body" }, foreignLines(bodyText(opened?.body as Bytes))),
    el("div", { class: "buttons" }, el("a", { class: "button", href: linkTo("message", label, row.seq) }, "Show the proof")));
}
