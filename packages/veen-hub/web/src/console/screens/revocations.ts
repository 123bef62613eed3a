/** Revocations of a realm: sealed records, which this page opens with a reader key of the realm (KEX1+ 4.3, spec-2 1.3). */
import { el, foreign } from "../../ui/dom.ts";
import { hex } from "../../verify/wire/bytes.ts";
import { plural } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { utc } from "../format.ts";
import { isInForce, realmId, revocationEnd, revocationStream } from "../records/realm.ts";
import { fieldsOf } from "../records/record.ts";
import { type RecordEntry, StreamLog } from "../records/stream_log.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, empty, hash } from "../widgets.ts";
import { keyBox } from "./key_box.ts";
import { progress, streamForm } from "./stream_form.ts";

export function revocations(app: App, root: HTMLElement, parts: readonly string[]): Stop {
  const [text = ""] = parts;
  root.append(
    el("p", {}, el("a", { href: linkTo("capabilities") }, "Capabilities")),
    el("h1", {}, "Revocations"),
    el("p", { class: "lead" }, "Keys and tokens that a realm has revoked, from the realm's sealed stream at this hub. "
      + "Every writer whom the hub admits to this stream can revoke."),
    streamForm("revocations", text, "shop, or 64 hex digits", "Realm"));
  if (text === "") {
    root.append(empty("Give the name of a realm, or its id."));
    return () => undefined;
  }
  const log = new StreamLog(app, [hex(revocationStream(realmId(text)))]);
  const [state, slot] = [el("div"), el("div")];
  root.append(state, keyBox(app), slot);
  const show = () => {
    const rows = log.view.value.entries.flatMap((entry) => rowOf(entry, app.trust.newestHubTs) ?? []).reverse();
    state.replaceChildren(progress(log.view.value));
    slot.replaceChildren(rows.length === 0 ? empty("No revocation was opened.") : el("div", {},
      el("p", {}, `${plural(rows.length, "revocation")}, newest first. In force or not is by the newest time that the hub has signed.`),
      el("div", { class: "table-scroll", role: "region", "aria-label": "Revocations", tabindex: 0 }, el("table", {},
        el("thead", {}, el("tr", {}, ...["entry", "revokes", "target", "from (UTC)", "until (UTC)", "state", "reason"].map((each) => el("th", { scope: "col" }, each)))),
        el("tbody", {}, ...rows)))));
  };
  const stops = [log.view.watch(show), app.hubLog.view.watch(show)];
  return () => {
    for (const stop of stops) stop();
    log.stop();
  };
}

function rowOf({ row, label, record }: RecordEntry, now: bigint): HTMLElement | undefined {
  const made = fieldsOf(record, "veen.revocation.v1");
  if (made === undefined) return undefined;
  const end = revocationEnd(made);
  return el("tr", {},
    el("td", {}, el("a", { href: linkTo("message", label, row.seq) }, String(row.seq))),
    el("td", {}, made.kind), el("td", {}, hash(hex(made.target), 12)),
    el("td", {}, utc(Number(made.ts))), el("td", {}, end === null ? "for ever" : utc(Number(end))),
    el("td", {}, isInForce(made, now) ? badge("holds", "in force") : badge("open", made.ts > now ? "later" : "ended")),
    el("td", {}, foreign(made.reason ?? "")));
}
