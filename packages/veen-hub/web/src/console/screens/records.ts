/** Records and queries: recorder events of streams, selected or grouped in this page, and a result file that others verify. */
import { el, foreign, visible } from "../../ui/dom.ts";
import type { QueryDescriptor } from "../../verify/query/descriptor.ts";
import { BASE_FIELDS } from "../../verify/query/fields.ts";
import { encodeText, type Json } from "../../verify/query/json.ts";
import { verifyQueryResult } from "../../verify/query/verify.ts";
import { plural, VeenError } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { breathe } from "../breathing.ts";
import { count } from "../format.ts";
import { CallError } from "../hub_calls.ts";
import { answerQuery, type QueryAnswer } from "../query/answer.ts";
import { queriedLabels } from "../query/labels.ts";
import { descriptorOf, type QueryForm } from "../query/request.ts";
import { fieldsOf } from "../records/record.ts";
import { StreamLog } from "../records/stream_log.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, card, empty, facts, field, hash, save } from "../widgets.ts";
import { keyBox } from "./key_box.ts";
import { namesForm, progress } from "./stream_form.ts";

/** Rows that the table shows; the file has all of them. */
const MAX_SHOWN = 500;

export function records(app: App, root: HTMLElement, names: readonly string[]): Stop {
  const streams = names.filter((name) => name !== "");
  root.append(
    el("h1", {}, "Records and queries"),
    el("p", { class: "lead" }, "A query is answered in this page: it reads the whole of each stream, verifies every entry, opens it with your "
      + "reader key, and answers. Nobody else learns what you ask."),
    namesForm("records", streams, "record/app/orders, record/app/payments"));
  if (streams.length === 0) {
    root.append(empty("Open one or more recorder streams by their names."));
    return () => undefined;
  }
  const log = new StreamLog(app, [...new Set(streams)]);
  const state = el("div");
  const slot = el("div", { class: "answer", "aria-live": "polite" });
  root.append(state, keyBox(app), queryForm(app, log, slot), slot);
  const stop = log.view.watch((view) => {
    const numberOf = (name: "record.event.v1" | "bridge.import.v1") => view.entries.filter(({ record }) => fieldsOf(record, name) !== undefined).length;
    const imported = numberOf("bridge.import.v1");
    state.replaceChildren(progress(view), el("p", { class: "quiet" }, `${plural(numberOf("record.event.v1"), "recorder event")}.`,
      imported === 0 ? "" : ` ${plural(imported, "event")} of another hub, imported by a bridge, count as other messages here.`));
  });
  return () => {
    stop();
    log.stop();
  };
}

function queryForm(app: App, log: StreamLog, slot: HTMLElement): HTMLElement {
  const text = (placeholder: string) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
  const [subject, types, from, to] = [text("user-17"), text("order.created, order.paid"), text("2026-01-31 12:00"), text("2026-02-01")];
  const [fields, groups, metrics] = [text("all fields"), text("event_type"), text("count, max(event_time)")];
  const where = el("textarea", { rows: 2, spellcheck: "false", placeholder: "payload.status=401" });
  const evidence = el("select", {}, el("option", { value: "full" }, "of every event"), el("option", { value: "spot" }, "of a sample"),
    el("option", { value: "none" }, "of no event"));
  const error = el("p", { class: "error", role: "alert" });
  const run = el("button", { type: "submit", class: "primary" }, "Run");
  const typed = (): QueryForm => ({
    streams: log.names, subject: subject.value, types: types.value, from: from.value, to: to.value, conditions: where.value,
    fields: fields.value, groups: groups.value, metrics: metrics.value, evidence: evidence.value,
  });
  const ask = async (): Promise<void> => {
    const descriptor = descriptorOf(typed(), `console-${crypto.randomUUID()}`);
    const hub = app.trust.hub.value;
    if (hub === undefined) return;
    const labels = await queriedLabels(app, hub, log);
    await breathe();
    const answer = await answerQuery(descriptor, hub.identity, labels, BigInt(Date.now()));
    await breathe();
    slot.replaceChildren(...await show(app, descriptor, answer));
  };
  return el("form", {
    class: "query",
    onsubmit: (event) => {
      event.preventDefault();
      error.textContent = "";
      slot.replaceChildren(el("p", { class: "quiet" }, "Reading, verifying and answering…"));
      run.disabled = true;
      void ask().catch((wrong: unknown) => {
        slot.replaceChildren();
        if (!(wrong instanceof VeenError || wrong instanceof CallError)) throw wrong;
        error.textContent = visible(wrong instanceof VeenError ? wrong.full : wrong.message);
      }).finally(() => {
        run.disabled = false;
      });
    },
  }, el("div", { class: "query-fields" },
    field("Subject", subject), field("Event types", types), field("Committed from (UTC)", from), field("until", to),
    field("Fields", fields, "such as event_type, payload.price"), field("Values, one per line", where, "FIELD=VALUE"),
    field("Group by", groups, "fields; one row per value"), field("Metrics", metrics, "count, min(…), max(…), sum(…), avg(…), count_distinct(…)"),
    field("Receipts", evidence)), run, error);
}

/** The answer, verified as anybody who gets the file would verify it. */
async function show(app: App, descriptor: QueryDescriptor, answer: QueryAnswer): Promise<HTMLElement[]> {
  const { rows } = answer;
  const hub = app.trust.hub.value;
  const proof = await verifyQueryResult(answer.file, hub?.identity.hub_id ?? null, hub?.identity ?? null,
    app.hubLog.policy ?? null, []);
  const download = el("button", { type: "button", class: "small", onclick: () => save(app.audit, "result.veenq", answer.bytes) },
    "Download the result file");
  return [
    card("Answer", facts([
      ["Verdict", badge("holds", "verified", "checked like a result file of somebody else")],
      ["Rows", count(rows.length)],
      ["result_id", hash(answer.resultId)],
    ]), el("details", {}, el("summary", {}, "What was checked, and what is not proved"),
      el("ul", {}, ...proof.steps.map((step) => el("li", {}, foreign(step))))),
    el("div", { class: "buttons" }, download)),
    coverageCard(answer),
    rows.length === 0 ? empty("No event matches.") : rowTable(descriptor, answer),
  ];
}

/** What the answer rests on: each label from its first entry to the last that was read. */
function coverageCard({ coverage }: QueryAnswer): HTMLElement {
  return card("Coverage", scrolling("Coverage", el("table", {},
    el("thead", {}, el("tr", {}, ...["stream", "epoch", "entries read", "hub checkpoint"].map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", {}, ...coverage.map(({ stream, epoch, to_seq: end, opened, unopened, matched, checkpoint }) => el("tr", {},
      el("td", {}, foreign(stream)), el("td", {}, String(epoch)),
      el("td", {}, end === 0n ? "none: the stream has no entries" : `1 to ${end}: ${opened} opened, ${unopened} not opened, ${matched} match`),
      el("td", {}, end === 0n ? "" : checkpoint === null ? badge("open", "none covers these entries yet") : badge("holds", "covers these entries"))))))));
}

function rowTable(descriptor: QueryDescriptor, { rows, events }: QueryAnswer): HTMLElement {
  const known = descriptor.aggregate === null ? BASE_FIELDS as readonly string[] : [...descriptor.aggregate.groupBy, ...descriptor.aggregate.metrics];
  const place = (name: string): number => (known.includes(name) ? known.indexOf(name) : known.length);
  const names = [...(rows[0]?.keys() ?? [])].sort((a, b) => place(a) - place(b));
  const entry = (at: number): HTMLElement | null => {
    const event = events[at];
    return event === undefined ? null : el("td", {}, el("a", { href: linkTo("message", event.label, String(event.seq)) }, String(event.seq)));
  };
  const shown = rows.slice(0, MAX_SHOWN);
  return el("div", {}, scrolling(`Rows of ${visible(descriptor.scope.join(", "))}`, el("table", {},
    el("thead", {}, el("tr", {}, events.length > 0 ? el("th", { scope: "col" }, "entry") : null,
      ...names.map((each) => el("th", { scope: "col" }, foreign(each))))),
    el("tbody", {}, ...shown.map((row, at) => el("tr", {}, entry(at), ...names.map((each) => el("td", {}, cell(row.get(each) ?? null)))))))),
  rows.length > MAX_SHOWN ? el("p", { class: "quiet" }, `The first ${MAX_SHOWN} rows are shown; the file has all.`) : null);
}

function scrolling(label: string, table: HTMLElement): HTMLElement {
  return el("div", { class: "table-scroll", role: "region", "aria-label": label, tabindex: 0 }, table);
}

function cell(value: Json): HTMLElement {
  const text = typeof value === "string" ? value : encodeText(value);
  return /^[0-9a-f]{64}$/.test(text) ? hash(text, 8) : /^rcpt-/.test(text) ? hash(text, 13) : foreign(text);
}

