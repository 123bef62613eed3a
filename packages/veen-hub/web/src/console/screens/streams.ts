/** Streams: the labels of the hub, and one of them live, every row verified in this page. */
import { el, foreign, visible } from "../../ui/dom.ts";
import { type Bytes, fromHex, hex } from "../../verify/wire/bytes.ts";
import { CallError } from "../hub_calls.ts";
import { plural, VeenError } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { clock, count, short, size, utc } from "../format.ts";
import type { Row } from "../label_chain.ts";
import type { LabelView } from "../label_watch.ts";
import { contentText } from "../message_body.ts";
import { findLabel } from "../records/find_stream.ts";
import { go, linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { VirtualList } from "../virtual_list.ts";
import { badge, empty, field, hash, said } from "../widgets.ts";
import { keyBox } from "./key_box.ts";

const ROW_HEIGHT = 44;
/** On a phone the content has a line of its own. */
const TALL_ROW_HEIGHT = 68;
const MAX_LISTED = 500;
/** Newest rows that a search in opened texts opens. */
const MAX_SEARCHED = 10_000;

export function streams(app: App, root: HTMLElement, parts: readonly string[]): Stop {
  const label = parts[0] === undefined ? undefined : fromHex(parts[0]);
  const chooser = el("aside", { class: "chooser" });
  const tail = el("section", { class: "tail" });
  root.classList.toggle("has-label", label?.length === 32);
  root.append(chooser, tail);
  const stopChooser = choose(app, chooser, parts[0]);
  if (label === undefined || label.length !== 32) {
    tail.append(empty("Choose a stream. Every row is verified in this page before it is shown as verified."));
    return stopChooser;
  }
  const from = parts[1] === undefined ? undefined : Number(parts[1]);
  const stopTail = follow(app, tail, label, Number.isSafeInteger(from) ? from : undefined);
  return () => {
    stopChooser();
    stopTail();
  };
}

function choose(app: App, root: HTMLElement, chosen: string | undefined): Stop {
  const list = el("ul", { class: "labels" });
  const note = el("p", { class: "quiet" });
  const error = el("p", { class: "error", role: "alert" });
  const name = el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "orders/eu", "data-search": "" });
  root.append(
    el("h1", {}, "Streams"),
    el("form", {
      class: "by-name",
      onsubmit: (event) => {
        event.preventDefault();
        error.textContent = openByName(app, name.value);
      },
    }, field("Stream name, or a label in hex", name), el("button", { type: "submit" }, "Open")),
    error, note, list, el("p", {}, el("a", { href: linkTo("identities") }, "Streams of identities and wallets")));
  const show = () => {
    const { labels, isComplete, head } = app.hubLog.view.value;
    const hub = app.trust.hub.value;
    if (hub !== undefined) app.labels.name("veen/control", hub.status.control_label);
    const names = app.labels.names.value;
    const heads = [...labels.values()].sort((a, b) => Number(b.hub_ts - a.hub_ts)).slice(0, MAX_LISTED);
    note.textContent = head === undefined ? "The hub log lists its labels once the hub has published a checkpoint."
      : isComplete ? `${plural(labels.size, "label")}: all of this hub, at the newest checkpoint`
        : "The hub log is too long for this page to list its labels: open a stream by its name.";
    list.replaceChildren(...heads.map((each) => {
      const id = hex(each.label);
      const known = names.get(id);
      return el("li", {}, el("a", { href: linkTo("streams", id), "aria-current": id === chosen ? "true" : null },
        known === undefined ? el("span", { class: "mono" }, short(id, 16)) : foreign(known, "name"),
        el("span", { class: "quiet" }, `${count(Number(each.upto_seq))} · ${utc(Number(each.hub_ts))}`)));
    }));
  };
  const stops = [app.hubLog.view.watch(show), app.labels.names.watch(show)];
  return () => {
    for (const stop of stops) stop();
  };
}

/** Open a stream by its name or label; return what is wrong with the name. */
function openByName(app: App, text: string): string {
  if (text.trim() === "") return "Type the name of a stream.";
  const label = findLabel(app, text);
  if (label !== undefined) go(linkTo("streams", hex(label)));
  return "";
}

function follow(app: App, root: HTMLElement, label: Bytes, from: number | undefined): Stop {
  const watch = app.labels.open(label, from);
  const id = hex(label);
  const state = el("span", { class: "state", role: "status" });
  const counts = el("span", { class: "quiet" });
  const client = el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: "client_id begins with …" });
  const verdict = el("select", {}, el("option", { value: "" }, "any verdict"),
    el("option", { value: "fails" }, "does not hold"), el("option", { value: "unconfirmed" }, "not yet confirmed"));
  const text = el("input", { type: "text", autocomplete: "off", placeholder: "opened text contains …" });
  const jump = el("input", { type: "text", autocomplete: "off", placeholder: "seq, or 2026-01-31 12:00", class: "jump" });
  const error = el("p", { class: "error", role: "alert" });
  const newest = el("button", { type: "button", class: "small" }, "Newest");
  const bodies = new Map<number, string | null>();
  const pending = new Set<number>();
  let keys = 0;
  let version = 0;

  const list = new VirtualList<Row>({
    rowHeight: matchMedia("(max-width: 800px)").matches ? TALL_ROW_HEIGHT : ROW_HEIGHT,
    label: "Messages",
    keyOf: (row) => {
      const confirmed = row.seq <= watch.view.value.confirmedUpTo ? "c" : "";
      return `${row.seq}-${row.verdict}${confirmed}${watch.view.value.isCosigned ? "" : "w"}-${bodies.has(row.seq) ? "o" : ""}${version}`;
    },
    render: (row) => {
      open(row);
      return rowElement(row, watch.view.value, bodies.get(row.seq));
    },
    onOpen: (row) => go(linkTo("message", id, row.seq)),
  });

  /** Open a row with the local keys, once it is in view. */
  const open = (row: Row) => {
    if (row.msg === undefined || pending.has(row.seq) || app.keys.keys.value.length === 0) return;
    pending.add(row.seq);
    void app.keys.open(row.msg).then((opened) => {
      bodies.set(row.seq, opened === undefined ? null : contentText(opened));
      later();
    });
  };

  const show = () => {
    const { rows, phase, note, confirmedUpTo, checkpointedUpTo } = watch.view.value;
    if (text.value) for (const row of rows.slice(-MAX_SEARCHED)) open(row);
    const shown = rows.filter((row) => matches(row, confirmedUpTo));
    list.setItems(shown);
    const failed = rows.some((row) => row.verdict === "fails");
    const sign = failed ? badge("fails", "does not hold") : phase === "live" ? said(true, "live") : badge("open", phase);
    state.replaceChildren(sign, el("span", { class: "quiet" }, note ? " " : "", note ? foreign(note) : null));
    const head = rows.at(-1);
    counts.textContent = rows.length === 0 ? "" : `${count(shown.length)} of ${count(rows.length)} rows, up to ${head?.seq}`
      + `, confirmed by the hub checkpoint up to ${confirmedUpTo || "none"}`
      + (checkpointedUpTo > 0 ? `, by the label's checkpoint up to ${checkpointedUpTo}` : "");
  };
  const matches = (row: Row, confirmed: number): boolean => {
    if (verdict.value === "fails" && row.verdict !== "fails") return false;
    if (verdict.value === "unconfirmed" && row.seq <= confirmed) return false;
    const wanted = client.value.trim().toLowerCase();
    if (wanted && !(row.msg !== undefined && hex(row.msg.client_id).startsWith(wanted))) return false;
    const part = text.value.toLowerCase();
    return !part || (bodies.get(row.seq)?.toLowerCase().includes(part) ?? false);
  };
  for (const input of [client, verdict, text]) input.addEventListener("input", show);
  newest.addEventListener("click", () => {
    if (from !== undefined) go(linkTo("streams", id));
    else list.follows = true;
  });

  const jumpTo = async (wanted: string): Promise<void> => {
    error.textContent = "";
    try {
      const seq = /^\d+$/.test(wanted) ? Number(wanted) : await watch.seqAt(secondsOf(wanted));
      const at = watch.view.value.rows.findIndex((row) => row.seq === seq);
      if (at >= 0) list.reveal(at);
      else go(linkTo("streams", id, Math.max(1, seq)));
    } catch (found) {
      if (!(found instanceof VeenError || found instanceof CallError)) throw found;
      error.textContent = visible(found.message);
    }
  };
  const form = el("form", {
    class: "jump-form",
    onsubmit: (event) => {
      event.preventDefault();
      const wanted = jump.value.trim();
      if (wanted && (/^\d+$/.test(wanted) || Number.isFinite(secondsOf(wanted)))) void jumpTo(wanted);
      else error.textContent = "Type a stream_seq, or a time in UTC such as 2026-01-31 12:00.";
    },
  }, field("Jump to", jump), el("button", { type: "submit", class: "small" }, "Go"), newest);

  root.append(
    el("div", { class: "title" }, el("a", { class: "back", href: linkTo("streams") }, "All streams"),
      el("h2", {}, app.labels.names.value.has(id) ? foreign(app.labels.names.value.get(id) as string) : "Label"), hash(id, 16)),
    el("div", { class: "toolbar" }, state, counts),
    el("details", { class: "filters", open: innerWidth > 700 }, el("summary", {}, "Filter and jump"),
      el("div", { class: "toolbar" }, field("Client", client), field("Verdict", verdict), field("Text", text), form)),
    keyBox(app), error,
    el("div", { class: "columns", "aria-hidden": "true" },
      ...["seq", "time", "client", "size", "verdict", "content"].map((name) => el("span", { class: name }, name))),
    list.root);

  let scheduled = false;
  const later = () => {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => {
      scheduled = false;
      show();
    });
  };
  const stops = [
    watch.view.watch(later),
    app.keys.keys.watch((held) => {
      if (held.length === keys) return;
      keys = held.length;
      bodies.clear();
      pending.clear();
      version += 1;
      later();
    }),
  ];
  return () => {
    for (const stop of stops) stop();
    list.close();
  };
}

function secondsOf(text: string): number {
  const iso = text.trim().replace(" ", "T");
  return Date.parse(/[zZ]|[+-]\d\d:\d\d$/.test(iso) ? iso : iso.length <= 10 ? iso : `${iso}Z`) / 1_000;
}

function rowElement(row: Row, { confirmedUpTo, isCosigned }: LabelView, body: string | null | undefined): HTMLElement {
  const { msg, token, receipt } = row;
  const sign = row.verdict === "fails" ? badge("fails", "does not hold", row.reason)
    : row.seq <= confirmedUpTo ? badge("holds", "confirmed", "verified, and under the newest hub checkpoint")
      : isCosigned ? badge("holds", "verified")
        : badge("open", "not confirmed", "verified, but the newest hub checkpoint has no quorum of witnesses");
  const content = row.verdict === "fails" ? el("span", { class: "error" }, foreign(row.reason))
    : token !== undefined ? "authorizes a token"
      : body === undefined ? el("span", { class: "quiet" }, "sealed")
        : body === null ? el("span", { class: "quiet" }, "sealed for another reader") : foreign(body.slice(0, 300));
  return el("div", { class: `message-row ${row.verdict}` },
    el("span", { class: "seq mono" }, String(row.seq)),
    el("time", { class: "time mono", title: receipt ? `${utc(Number(receipt.hub_ts))} UTC` : "" }, receipt ? clock(Number(receipt.hub_ts)) : ""),
    el("span", { class: "client mono" }, msg ? short(hex(msg.client_id)) : token ? short(hex(token.subject_pk)) : ""),
    el("span", { class: "size" }, msg ? size(msg.ciphertext.length) : ""),
    el("span", { class: "verdict" }, sign),
    el("span", { class: "content" }, content));
}
