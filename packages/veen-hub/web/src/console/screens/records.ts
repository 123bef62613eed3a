/** Records and queries: recorder events of a stream, selected in this page, and a result file that others verify. */
import { el, foreign, visible } from "../../ui/dom.ts";
import { parseSignedHead } from "../../verify/hublog/note.ts";
import { normalise } from "../../verify/query/descriptor.ts";
import { BASE_FIELDS } from "../../verify/query/fields.ts";
import { encodeText, type Json, object } from "../../verify/query/json.ts";
import { verifyQueryResult } from "../../verify/query/verify.ts";
import { hex } from "../../verify/wire/bytes.ts";
import { decodeObject } from "../../verify/wire/codec.ts";
import { plural, VeenError } from "../../verify/wire/errors.ts";
import type { HubLogLink } from "../../verify/wire/schema.ts";
import type { App } from "../app.ts";
import { count } from "../format.ts";
import { CallError } from "../hub_calls.ts";
import { answerQuery, type QueriedLog, type QueryAnswer } from "../query/answer.ts";
import { findStream, type NamedLabel } from "../records/find_stream.ts";
import { fieldsOf } from "../records/record.ts";
import { RecordLog } from "../records/record_log.ts";
import { go, linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, card, empty, facts, field, hash, save } from "../widgets.ts";
import { keyBox } from "./key_box.ts";
import { progress, streamForm } from "./stream_form.ts";

/** Rows that the table shows; the file has all of them. */
const MAX_SHOWN = 500;

export function records(app: App, root: HTMLElement, parts: readonly string[]): Stop {
  const [name = ""] = parts;
  root.append(
    el("h1", {}, "Records and queries"),
    el("p", { class: "lead" }, "What happened, in which order, who caused it, and up to where the answer is complete. This page reads the whole "
      + "stream, verifies it, opens it with your reader key, and answers. Nobody else learns what you ask."),
    streamForm("records", name, "record/app/orders"));
  const found = name === "" ? undefined : findStream(app, name);
  if (found === undefined) {
    root.append(empty("Open a recorder stream by its name."));
    return () => undefined;
  }
  const log = new RecordLog(app, found.label);
  const state = el("div");
  const slot = el("div", { class: "answer" });
  root.append(state, keyBox(app), queryForm(app, found, log, slot), slot);
  const stop = log.view.watch((view) => {
    const events = view.entries.filter(({ record }) => fieldsOf(record, "record.event.v1") !== undefined).length;
    const imported = view.entries.filter(({ record }) => fieldsOf(record, "bridge.import.v1") !== undefined).length;
    const epochs = app.trust.hub.value?.status.profile.epoch_sec === 0n ? "" : ` Only epoch ${found.epoch} is read; veen query run reads all epochs.`;
    state.replaceChildren(progress(view), el("p", { class: "quiet" }, `${plural(events, "recorder event")}.`,
      imported === 0 ? "" : ` ${plural(imported, "event")} of another hub, imported by a bridge, count as other messages here.`, epochs));
  });
  return () => {
    stop();
    log.stop();
  };
}

function queryForm(app: App, found: NamedLabel, log: RecordLog, slot: HTMLElement): HTMLElement {
  const text = (placeholder: string) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
  const subject = text("user-17");
  const types = text("order.created, order.paid");
  const [from, to] = [text("2026-01-31 12:00"), text("2026-02-01")];
  const fields = text("all fields");
  const error = el("p", { class: "error", role: "alert" });
  const run = el("button", { type: "submit" }, "Run");
  const ask = async (): Promise<void> => {
    const descriptor = normalise(object({
      query_id: `console-${crypto.randomUUID()}`, version: 1n, scope: [found.name],
      filter: object({
        subject_id: subject.value.trim() || null,
        event_type: types.value.trim() ? words(types.value) : null,
        time: object({ from: timestamp(from.value), to: timestamp(to.value) }),
      }),
      projection: fields.value.trim() ? words(fields.value) : ["*"],
      evidence: object({ mode: "full" }),
    }));
    const queried = await queriedLog(app, found, log);
    const answer = await answerQuery(descriptor, queried, BigInt(Date.now()));
    slot.replaceChildren(...await show(app, answer, found));
  };
  return el("form", {
    class: "query toolbar",
    onsubmit: (event) => {
      event.preventDefault();
      error.textContent = "";
      run.disabled = true;
      void ask().catch((wrong: unknown) => {
        if (!(wrong instanceof VeenError || wrong instanceof CallError)) throw wrong;
        error.textContent = visible(wrong instanceof VeenError ? wrong.full : wrong.message);
      }).finally(() => {
        run.disabled = false;
      });
    },
  }, field("Subject", subject), field("Event types", types), field("Committed from (UTC)", from), field("until", to),
  field("Fields", fields, "such as event_type, payload.price"), run, error);
}

const words = (text: string): string[] => text.split(",").map((each) => each.trim()).filter((each) => each !== "");

/** Return a time that a person typed as a timestamp; a time that is none stays as it is, and is refused later. */
function timestamp(text: string): Json {
  const typed = text.trim().replace(" ", "T");
  if (typed === "") return null;
  const time = new Date(typed.length <= 10 || /Z$/.test(typed) ? typed : `${typed}Z`);
  return Number.isNaN(time.getTime()) ? typed : time.toISOString();
}

/** The entries up to the newest hub checkpoint that covers them; without one, all that were verified. */
async function queriedLog(app: App, found: NamedLabel, log: RecordLog): Promise<QueriedLog> {
  const { entries, isCaughtUp, isWhole } = log.view.value;
  const hub = app.trust.hub.value;
  if (hub === undefined || !isCaughtUp) throw new VeenError("the stream is still being read", "run the query again in a moment");
  if (!isWhole) throw new VeenError("the first entries of the stream are missing here", "use `veen query run`, which proves what was pruned");
  if (entries.length === 0) throw new VeenError("the stream has no entries");
  const named = { stream: found.name, label: found.label, epoch: found.epoch, identity: hub.identity };
  const link = await linkOf(app, found);
  const end = Number(link?.head.upto_seq ?? 0n);
  if (link === null || end > entries.length) return { ...named, entries, link: null, checkpoint: null };
  const checkpoint = parseSignedHead(link.checkpoint).note.text;
  return { ...named, entries: entries.slice(0, end), link, checkpoint };
}

async function linkOf(app: App, found: NamedLabel): Promise<HubLogLink | null> {
  try {
    const { head, index, proof, checkpoint } = decodeObject("HubProofResponse", await app.hub.hubLogProof(found.label));
    await app.hubLog.compare(checkpoint);
    const origin = app.trust.hub.value?.status.hub_log_origin ?? null;
    return { ver: 1n, head, index, head_proof: proof, checkpoint, consistency: null, origin };
  } catch (error) {
    if (error instanceof CallError) return null; // no checkpoint yet, or none that this page can compare
    throw error;
  }
}

/** The answer, verified as anybody who gets the file would verify it. */
async function show(app: App, answer: QueryAnswer, found: NamedLabel): Promise<HTMLElement[]> {
  const { source, rows } = answer;
  const hub = app.trust.hub.value;
  const proof = await verifyQueryResult(answer.file, hub?.identity.hub_id ?? null, hub?.identity ?? null,
    app.hubLog.policy ?? null, []);
  const download = el("button", { type: "button", class: "small", onclick: () => save(app.audit, "result.veenq", answer.bytes) },
    "Download the result file");
  return [
    card("Answer", facts([
      ["Verdict", badge("holds", "verified", "checked like a result file of somebody else")],
      ["Rows", count(rows.length)],
      ["Entries read", `1 to ${source.to_seq}: ${source.opened} opened, ${source.unopened} not opened, ${source.matched} match`],
      ["Hub checkpoint", source.checkpoint === null ? badge("open", "none covers these entries yet") : badge("holds", "covers these entries")],
      ["result_id", hash(answer.resultId)],
    ]), el("details", {}, el("summary", {}, "What was checked, and what is not proved"),
      el("ul", {}, ...proof.steps.map((step) => el("li", {}, foreign(step))))),
    el("div", { class: "buttons" }, download)),
    rows.length === 0 ? empty("No event matches.") : rowTable(answer, found),
  ];
}

function rowTable({ rows, source, file }: QueryAnswer, found: NamedLabel): HTMLElement {
  const [first] = rows;
  const known = new Map((BASE_FIELDS as readonly string[]).map((name, at) => [name, at]));
  const names = [...(first?.keys() ?? [])].sort((a, b) => (known.get(a) ?? 99) - (known.get(b) ?? 99));
  const label = hex(source.label);
  const seqs = file.evidence.sources[0]?.receipts.map((wire) => decodeObject("Receipt", wire).stream_seq) ?? [];
  const shown = rows.slice(0, MAX_SHOWN);
  return el("div", { class: "table-scroll", role: "region", "aria-label": `Rows of ${visible(found.name)}`, tabindex: 0 },
    el("table", {},
      el("thead", {}, el("tr", {}, el("th", {}, "entry"), ...names.map((each) => el("th", {}, foreign(each))))),
      el("tbody", {}, ...shown.map((row, at) => el("tr", {},
        el("td", {}, el("button", { type: "button", class: "small", onclick: () => go(linkTo("message", label, String(seqs[at]))) },
          String(seqs[at]))),
        ...names.map((each) => el("td", {}, cell(row.get(each) ?? null))))))),
    rows.length > MAX_SHOWN ? el("p", { class: "quiet" }, `The first ${MAX_SHOWN} rows are shown; the file has all.`) : null);
}

function cell(value: Json): HTMLElement {
  const text = typeof value === "string" ? value : encodeText(value);
  return /^[0-9a-f]{64}$/.test(text) ? hash(text, 8) : /^rcpt-/.test(text) ? hash(text, 13) : foreign(text);
}
