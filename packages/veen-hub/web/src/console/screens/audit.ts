/** Audit: what this console did since it was opened. */
import { el, foreign } from "../../ui/dom.ts";
import type { App } from "../app.ts";
import { type AuditEvent, type EventKind, MAX_EVENTS } from "../audit.ts";
import { count } from "../format.ts";
import type { Stop } from "../subject.ts";
import { VirtualList } from "../virtual_list.ts";
import { badge, field, save } from "../widgets.ts";

const KINDS: readonly EventKind[] = ["request", "check", "trust", "key", "download"];

export function audit(app: App, root: HTMLElement): Stop {
  const kind = el("select", { onchange: () => show() }, el("option", { value: "" }, "all kinds"),
    ...KINDS.map((name) => el("option", { value: name }, name)));
  const outcome = el("select", { onchange: () => show() },
    el("option", { value: "" }, "any outcome"), el("option", { value: "failed" }, "failed"));
  const summary = el("p", { class: "quiet" });
  const numbered = new WeakMap<AuditEvent, number>();
  let next = 0;
  const list = new VirtualList<AuditEvent>({
    rowHeight: 36,
    label: "Events",
    keyOf: (event) => {
      if (!numbered.has(event)) numbered.set(event, next++);
      return `${numbered.get(event)}`;
    },
    render: (event) => el("div", { class: "audit-row" },
      el("time", { class: "mono quiet" }, new Date(event.at).toISOString().slice(11, 23)),
      el("span", { class: "kind" }, event.kind),
      event.outcome === "failed" ? badge("fails", "failed") : el("span", { class: "quiet" }, "ok"),
      el("span", { class: "text" }, foreign(event.text))),
    onOpen: () => undefined,
  });
  const show = () => {
    const all = app.audit.events.value;
    const shown = all.filter((event) => (!kind.value || event.kind === kind.value)
      && (!outcome.value || event.outcome === outcome.value));
    list.setItems(shown);
    const lost = app.audit.dropped > 0 ? `, ${count(app.audit.dropped)} older ones dropped` : "";
    summary.textContent = `${count(shown.length)} of ${count(all.length)} events${lost}. `
      + `Kept in this tab only, at most ${count(MAX_EVENTS)}.`;
  };
  const download = () => {
    const lines = app.audit.events.value.map((event) => JSON.stringify(event)).join("\n");
    save(app.audit, "veen-console-audit.jsonl", new TextEncoder().encode(`${lines}\n`), "application/jsonl");
  };
  root.append(
    el("h1", {}, "Audit"),
    el("p", { class: "lead" }, "Every request, check, decision about trust, use of a key and download of this console."),
    el("div", { class: "toolbar" }, field("Kind", kind), field("Outcome", outcome),
      el("button", { type: "button", onclick: download }, "Download")),
    summary, list.root);
  const stop = app.audit.events.watch(show);
  return () => {
    stop();
    list.close();
  };
}
