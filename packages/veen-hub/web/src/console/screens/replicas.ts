/** Replicas: who copies whom, how far behind, and whether this hub was handed over (RESOLUTIONS P9). */
import { el, foreign } from "../../ui/dom.ts";
import { hex } from "../../verify/wire/bytes.ts";
import type { App } from "../app.ts";
import { count, utc } from "../format.ts";
import type { Stop } from "../subject.ts";
import { badge, card, empty, facts, hash, said } from "../widgets.ts";

export function replicas(app: App, root: HTMLElement): Stop {
  const slots = { role: el("div"), copies: el("div"), handover: el("div") };
  root.append(el("h1", {}, "Replicas"),
    el("p", { class: "lead" }, "A replica copies a whole hub and signs nothing. A handover is signed; the rest of this screen is said by the hub."),
    el("div", { class: "grid" }, card("This hub", slots.role), card("Copying", slots.copies), card("Handover", slots.handover)));
  const draw = () => {
    const status = app.trust.hub.value?.status;
    if (status === undefined) return;
    const samples = app.vitals.vitals.value.scrapes.at(-1)?.samples;
    const metric = (name: string) => samples?.get(name);
    const isReplica = status.replica_of !== null;
    slots.role.replaceChildren(facts([
      ["Role", isReplica ? "replica" : "primary"],
      ["Of", status.replica_of === null ? null : foreign(status.replica_of)],
      ["Signs", status.not_signing === null && !isReplica ? said(true, "yes") : badge("open", "no")],
      ["Why not", status.not_signing === null ? null : foreign(status.not_signing)],
    ]));
    if (samples === undefined) {
      slots.copies.replaceChildren(empty("No metrics."));
    } else if (isReplica) {
      const connected = metric("veen_replica_connected") === 1;
      const diverged = metric("veen_replica_diverged") === 1;
      slots.copies.replaceChildren(facts([
        ["Connected", said(connected, connected ? "yes" : "no")],
        ["Contradiction", said(!diverged, diverged ? "the primary contradicts this replica" : "none")],
        ["Batches behind", count(metric("veen_replica_behind_batches") ?? Number.POSITIVE_INFINITY)],
        ["Attachments missing", count(metric("veen_replica_missing_attachments") ?? 0)],
        ["Batches copied", count(metric("veen_replica_batches_total") ?? 0)],
      ]));
    } else {
      slots.copies.replaceChildren(facts([
        ["Replicas connected", metric("veen_replicas") === undefined ? "not reported" : count(metric("veen_replicas") as number)],
      ]));
    }
    const record = status.handover; // verified with the status that carries it
    slots.handover.replaceChildren(record === null ? empty("This hub was not handed over.") : facts([
      ["Record", badge("holds", "signed by this hub", "the hub signed it, and its last hub checkpoint")],
      ["To hub", hash(hex(record.new_hub), 16)],
      ["At", foreign(record.url)],
      ["When", `${utc(Number(record.hub_ts))} UTC`],
      ["Attachments", count(Number(record.attachments))],
    ]));
  };
  const stops = [app.trust.hub.watch(draw), app.vitals.vitals.watch(draw)];
  return () => {
    for (const stop of stops) stop();
  };
}
