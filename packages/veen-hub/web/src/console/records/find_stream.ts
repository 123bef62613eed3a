/** A stream by its name: the label of the newest epoch that has entries (core §2, §12). */
import { type Bytes, fromHex, hex } from "../../verify/wire/bytes.ts";
import type { App } from "../app.ts";
import { epochsAt, labelOf } from "../label_names.ts";

export interface NamedLabel {
  readonly name: string;
  readonly label: Bytes;
  readonly epoch: bigint;
}

/** Find the label of a name, and remember the name for every label that it may have. */
export function findStream(app: App, name: string): NamedLabel | undefined {
  const hub = app.trust.hub.value;
  if (hub === undefined) return undefined;
  const known = app.hubLog.view.value.labels;
  const { profile, limits, hub_ts: now } = hub.status;
  const candidates = [...epochsAt(now, profile.epoch_sec, limits.max_epoch_skew_sec)].reverse()
    .map((epoch) => ({ name, epoch, label: labelOf(hub.identity.hub_id, name, epoch) }));
  for (const each of candidates) app.labels.name(each.label, name);
  return candidates.find((each) => known.has(hex(each.label))) ?? candidates.at(-1);
}

/** Find what a person typed: a label of the hub log in hex, or the name of a stream. */
export function findLabel(app: App, text: string): Bytes | undefined {
  const isLabel = /^[0-9a-f]{64}$/.test(text) && app.hubLog.view.value.labels.has(text);
  return isLabel ? fromHex(text) : findStream(app, text)?.label;
}
