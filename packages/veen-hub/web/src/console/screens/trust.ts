/** Trust: whom this page believes, by which keys, and what it has verified so far. */
import { el, foreign, svg } from "../../ui/dom.ts";
import { hex } from "../../verify/wire/bytes.ts";
import { encodeObject } from "../../verify/wire/codec.ts";
import { isActive } from "../../verify/log/identity.ts";
import type { HubKey } from "../../verify/wire/schema.ts";
import type { App } from "../app.ts";
import { count, span, utc } from "../format.ts";
import type { HubHead } from "../hub_log_watch.ts";
import type { Stop } from "../subject.ts";
import type { ConfirmedHub } from "../trust_state.ts";
import { badge, card, empty, facts, hash, said, save } from "../widgets.ts";
import { grouped } from "./confirm.ts";

const MAX_SHOWN = 20;

export function trust(app: App, root: HTMLElement): Stop {
  const slots = { pin: el("div"), keys: el("div"), quorum: el("div"), checkpoints: el("div"), enforces: el("div") };
  root.append(
    el("h1", {}, "Trust"),
    el("p", { class: "lead" }, "All that this page shows as verified follows from one hub_id, which you confirmed."),
    el("div", { class: "grid" },
      card("Pinned hub", slots.pin), card("Keys of the hub", slots.keys), card("Witnesses", slots.quorum),
      card("Hub checkpoints", slots.checkpoints), card("What the hub says that it enforces", slots.enforces)));
  const stops = [
    app.trust.hub.watch((hub) => {
      if (hub === undefined) return;
      slots.pin.replaceChildren(pin(app, hub));
      slots.keys.replaceChildren(...keys(hub, app.trust.newestHubTs));
      slots.enforces.replaceChildren(enforces(hub));
    }),
    app.hubLog.view.watch((view) => {
      slots.quorum.replaceChildren(quorum(app));
      slots.checkpoints.replaceChildren(checkpoints(app, view.history));
    }),
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

function pin(app: App, hub: ConfirmedHub): HTMLElement {
  const failed = app.problems.of("identity");
  return el("div", {}, grouped(hub.hubId), facts([
    ["Identity", failed === undefined ? badge("holds", "verified") : badge("fails", "does not hold")],
    ["Why", failed === undefined ? null : foreign(failed.reason)],
    ["Verified", `${utc(hub.verifiedAt / 1_000)} UTC`],
    ["Anchored by", hub.identity.anchoring],
    ["Remembered", app.trust.isRemembered ? "in this browser" : "until this tab is closed"],
    ["Handed over to", hub.status.handover === null ? null : hash(hex(hub.status.handover.new_hub), 16)],
  ]), el("div", { class: "buttons" }, el("button", {
    type: "button", class: "small",
    onclick: () => save(app.audit, "hub-identity.cbor", encodeObject("HubIdentity", hub.identity)),
  }, "Download the identity")));
}

/** Each key as a bar from its first to its last second, and below it as a list. */
function keys(hub: ConfirmedHub, signedNow: bigint): readonly (HTMLElement | SVGElement)[] {
  const now = hub.status.hub_ts;
  const all = hub.identity.hub_keys;
  const start = Number((all[0] as HubKey).valid_from);
  const last = Math.max(Number(now), ...all.map((key) => Number(key.valid_until ?? now)));
  const scale = (time: number) => (200 * (time - start)) / Math.max(1, last - start);
  const bars = all.map((key, at) => svg("rect", {
    x: scale(Number(key.valid_from)).toFixed(1), y: at * 14 + 2,
    width: Math.max(2, scale(Number(key.valid_until ?? BigInt(last))) - scale(Number(key.valid_from))).toFixed(1), height: 9, rx: 3,
    class: isActive(key, now) ? "active" : "retired",
  }));
  const height = all.length * 14 + 2;
  const nowAt = scale(Number(now)).toFixed(1);
  const drawing = svg("svg", {
    class: "timeline", viewBox: `0 0 200 ${height}`, role: "img",
    "aria-label": `${all.length} keys from ${utc(start)} to ${utc(last)} UTC; the list below has each of them`,
  }, ...bars, svg("line", { x1: nowAt, x2: nowAt, y1: 0, y2: height, class: "now" }));
  const list = el("ol", { class: "key-list" }, ...all.map((key) => el("li", {},
    hash(hex(key.hub_pk), 16),
    isActive(key, signedNow) ? badge("holds", "active") : isActive(key, now) ? said(true, "active") : badge("open", Number(key.valid_from) > Number(now) ? "not yet" : "retired"),
    el("p", { class: "quiet" }, `from ${utc(Number(key.valid_from))}`, key.valid_until === null ? ""
      : ` until ${utc(Number(key.valid_until))}`, key.endorsement === null ? ", the first key: its hash is the hub_id"
      : ", endorsed by the key before"))));
  return [drawing, list];
}

function quorum(app: App): HTMLElement {
  const { policy, policyError } = app.hubLog;
  const head = app.hubLog.view.value.head;
  if (policyError) return el("p", { class: "error" }, foreign(policyError));
  const rows: [string, HTMLElement | string | null][] = [
    ["Quorum", head?.quorum === undefined ? badge("open", policy === undefined ? "no policy given" : "no hub checkpoint yet")
      : badge(head.quorum.isMet ? "holds" : "fails", head.quorum.text)],
    ["Wanted", policy === undefined ? null : `${policy.quorum}, of ${policy.witnesses.map((each) => each.name).join(", ")}`],
    ["Largest age", policy === undefined ? null : span(policy.maxAgeSec)],
    ...(head?.cosignatures ?? []).map((each): [string, HTMLElement] => [each.name, el("span", {},
      badge(each.isVerified ? "holds" : "open", each.isVerified ? "verified" : "no key given"), ` ${utc(each.at)} UTC`)]),
  ];
  return el("div", {}, facts(rows), policy === undefined
    ? el("p", { class: "quiet" }, "Without the keys of witnesses a hub that shows two histories to two readers is not found. Start the "
      + "console with --witnesses FILE.") : null);
}

function checkpoints(app: App, history: readonly HubHead[]): HTMLElement {
  if (history.length === 0) return empty("None verified yet.");
  return el("div", {}, el("p", { class: "quiet" },
    `${count(history.length)} in this session, each verified, each a continuation of the one before`),
  el("table", {}, el("thead", {}, el("tr", {}, ...["Size", "Root", "Verified", ""].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...history.slice(0, MAX_SHOWN).map((head) => el("tr", {},
      el("td", {}, count(head.size)), el("td", {}, hash(head.root, 12)), el("td", {}, utc(head.seenAt / 1_000).slice(11)),
      el("td", {}, el("button", { type: "button", class: "small",
        onclick: () => save(app.audit, `hub-checkpoint-${head.size}.txt`, head.note, "text/plain") }, "Download")))))));
}

function enforces({ status }: ConfirmedHub): HTMLElement {
  return facts([
    ["Level", status.level],
    ["Enforces", foreign(status.enforces.join(", ") || "nothing")],
    ["Cannot enforce", foreign(status.cannot_enforce.join("; ") || "nothing")],
    ["Memories", status.memories === null ? "none: a restored copy could sign a second history" : foreign(status.memories.join(", "))],
  ]);
}
