/** Overview: is the hub healthy, how far is each stage behind, how old are its witnesses' cosignatures. */
import { el } from "../../ui/dom.ts";
import type { App } from "../app.ts";
import { count, rate, size, span, utc } from "../format.ts";
import { byLabel, type Samples } from "../metrics.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { ratesOf, type Vitals } from "../vitals.ts";
import { badge, card, empty, facts, hash, said, sparkline } from "../widgets.ts";

/** A counter that every hub has. */
const COUNTER = "veen_submit_ok_total";
const STAGES = ["accepted", "durable", "applied", "checkpointed", "anchored"] as const;

export function overview(app: App, root: HTMLElement): Stop {
  const slots = { health: el("div"), stages: el("div"), rates: el("div"), trust: el("div"), disk: el("div") };
  root.append(
    el("h1", {}, "Overview"),
    el("div", { class: "grid" },
      card("Health", slots.health),
      card("Confirmed", slots.trust),
      card("Stages", slots.stages),
      card("Rates", slots.rates),
      card("Disk and memory", slots.disk)));
  const stops = [
    app.vitals.vitals.watch((vitals) => {
      slots.health.replaceChildren(...health(app, vitals));
      const samples = vitals.scrapes.at(-1)?.samples;
      const draw = (slot: HTMLElement, content: (samples: Samples) => HTMLElement) =>
        slot.replaceChildren(samples === undefined ? empty(vitals.hasProbes ? "No metrics yet." : "This listener has no metrics: start it with --probes.")
          : samples.has(COUNTER) ? content(samples) : el("p", {}, badge("fails", "no counters"), ` /metrics does not have ${COUNTER}.`));
      draw(slots.stages, stages);
      draw(slots.rates, (found) => rates(vitals, found));
      draw(slots.disk, disk);
    }),
    app.hubLog.view.watch(() => slots.trust.replaceChildren(confirmed(app))),
    app.problems.all.watch(() => slots.health.replaceChildren(...health(app, app.vitals.vitals.value))),
  ];
  const tick = setInterval(() => slots.trust.replaceChildren(confirmed(app)), 1_000);
  return () => {
    clearInterval(tick);
    for (const stop of stops) stop();
  };
}

function health(app: App, vitals: Vitals): readonly HTMLElement[] {
  const silent = app.problems.of("connection");
  const status = app.trust.hub.value?.status;
  const lies = app.problems.all.value.filter((each) => each.isLie).length;
  const rows: [string, HTMLElement | string | null][] = [
    ["Answers", silent === undefined ? said(true, "yes") : badge("open", "no")],
    ["Ready", vitals.ready === undefined ? badge("open", "unknown", vitals.why)
      : said(vitals.ready, vitals.ready ? "yes" : "no")],
    ["Reason", vitals.why || null],
    ["Signing", status === undefined ? null : said(status.not_signing === null, status.not_signing === null ? "yes" : "no")],
    ["Why not", status?.not_signing ?? null],
    ["Checks that failed", lies === 0 ? badge("holds", "none") : badge("fails", count(lies))],
    ["Writers", status === undefined ? null : status.gating ? "need a token" : "every client that reaches the port"],
    ["Version", status?.server_version ?? null],
    ["Replica of", status?.replica_of ?? null],
  ];
  return [facts(rows)];
}

function confirmed(app: App): HTMLElement {
  const view = app.hubLog.view.value;
  const hub = app.trust.hub.value;
  if (hub === undefined) return empty("The hub's identity is not verified.");
  const rows: [string, HTMLElement | string | null][] = [
    ["Identity", el("span", {}, badge("holds", "verified"), " ", hash(hub.hubId, 12))],
  ];
  if (view.head === undefined) {
    rows.push(["Hub checkpoint", badge(app.problems.in("hub log").length ? "fails" : "open", view.note || "none yet")]);
  } else {
    const failed = app.problems.in("hub log").some((each) => each.isLie);
    rows.push(
      ["Hub checkpoint", el("span", {}, failed ? badge("fails", "does not hold") : badge("holds", "verified"),
        ` size ${count(view.head.size)}`)],
      ["Verified", `${span((Date.now() - view.head.seenAt) / 1_000)} ago`],
      ["Labels", view.isComplete ? `${count(view.labels.size)}, the list is complete` : "not all read"],
    );
    for (const cosigned of view.head.cosignatures) {
      const age = Date.now() / 1_000 - cosigned.at;
      rows.push([cosigned.name, cosigned.isVerified
        ? el("span", {}, badge("holds", "verified"), ` ${span(age)} old`)
        : el("span", {}, badge("open", "no key given"), ` says ${utc(cosigned.at)}`)]);
    }
    rows.push(["Quorum", view.head.quorum === undefined
      ? badge("open", "no policy given") : view.head.quorum.isMet
        ? badge("holds", view.head.quorum.text) : badge("fails", view.head.quorum.text)]);
  }
  return el("div", {}, facts(rows), el("p", {}, el("a", { href: linkTo("trust") }, "All that is trusted, and why")));
}

function stages(samples: Samples): HTMLElement {
  const entries = byLabel(samples, "veen_stage_entries");
  const table = el("table", { class: "stages" },
    el("thead", {}, el("tr", {}, ...["Stage", "Entries", "Behind"].map((name) => el("th", { scope: "col" }, name)))));
  const body = el("tbody");
  let before = entries.get("accepted") ?? entries.get("durable") ?? 0;
  for (const name of STAGES) {
    const value = entries.get(name);
    if (value === undefined || (name === "anchored" && value === 0)) continue; // no anchors are configured
    const lag = Math.max(0, before - value);
    const bar = el("span", { class: "bar" });
    bar.style.inlineSize = `${before > 0 ? Math.round((100 * value) / before) : 100}%`;
    body.append(el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, count(value)),
      el("td", { class: lag > 0 ? "lagging" : "" }, lag > 0 ? count(lag) : "none", el("span", { class: "track" }, bar))));
    before = value;
  }
  table.append(body);
  return el("div", {}, table, facts([["Waiting in the queue", reported(samples, "veen_queue_depth")]]));
}

/** A number that the hub reports; a number that it does not report is not 0. */
const reported = (samples: Samples, name: string, form: (n: number) => string = count): string => {
  const value = samples.get(name);
  return value === undefined ? "not reported" : form(value);
};

function rates(vitals: Vitals, samples: Samples): HTMLElement {
  const rows = [
    ["Messages accepted", "veen_submit_ok_total", "per second"],
    ["Checkpoints", "veen_checkpoints_total", "per second"],
    ["Hub checkpoints", "veen_hub_checkpoints_total", "per second"],
  ] as const;
  const refused = [...byLabel(samples, "veen_submit_err_total").entries()].filter(([, n]) => n > 0);
  return el("div", {},
    ...rows.map(([name, key, unit]) => {
      const values = ratesOf(vitals.scrapes, key);
      const now = values.at(-1) ?? 0;
      return el("div", { class: "rate" },
        el("span", {}, name), el("strong", {}, `${rate(now)} `, el("small", { class: "quiet" }, unit)),
        sparkline(values.length > 1 ? values : [0, 0], `${name} over the last three minutes`));
    }),
    facts([["Followers", reported(samples, "veen_followers")],
      ["Refused since start", refused.map(([code, n]) => `${code} ${count(n)}`).join(", ") || "none"]]));
}

function disk(samples: Samples): HTMLElement {
  const free = samples.get("veen_disk_free_bytes");
  const total = samples.get("veen_disk_bytes");
  return facts([
    ["Free", free === undefined || total === undefined ? null
      : el("span", {}, `${size(free)} of ${size(total)} `, free < total / 10 ? badge("fails", "low") : null)],
    ["Journal not yet applied", reported(samples, "veen_wal_bytes", size)],
    ["Attachments", `${reported(samples, "veen_attachments_total")}, ${reported(samples, "veen_attachment_bytes_total", size)}`],
    ["Log lines dropped", reported(samples, "veen_log_lines_dropped_total")],
  ]);
}
