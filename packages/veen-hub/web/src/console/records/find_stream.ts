/** A stream by its name: its labels, one for each epoch that has entries (core §2, §12). */
import { type Bytes, fromHex, hex } from "../../verify/wire/bytes.ts";
import type { App } from "../app.ts";
import { epochsAt, labelOf } from "../label_names.ts";

export interface NamedLabel {
  readonly name: string;
  readonly label: Bytes;
  readonly epoch: bigint;
  /** Whether the hub accepts entries for the label now, so that it may have entries that the hub log does not have. */
  readonly isOpen: boolean;
}

/**
 * Return the labels of a stream in the order of their epochs, and remember its name for each of them.
 *
 * An entry's time lies in the epoch of its label, give or take the skew, so the heads of the hub log name the epochs.
 */
export function labelsOf(app: App, name: string): NamedLabel[] {
  const hub = app.trust.hub.value;
  if (hub === undefined) return [];
  const heads = app.hubLog.view.value.labels;
  const { profile, limits, hub_ts: now } = hub.status;
  const window = (time: bigint): readonly bigint[] => epochsAt(time, profile.epoch_sec, limits.max_epoch_skew_sec);
  const open = new Set(window(now));
  const epochs = new Set([...[...heads.values()].flatMap((head) => window(head.hub_ts)), ...open]);
  const found = [...epochs].sort((a, b) => (a < b ? -1 : 1))
    .map((epoch) => ({ name, epoch, label: labelOf(hub.identity.hub_id, name, epoch), isOpen: open.has(epoch) }))
    .filter(({ label, isOpen }) => isOpen || heads.has(hex(label)));
  app.labels.name(name, ...found.map(({ label }) => label));
  return found;
}

/** Find what a person typed: a label of the hub log in hex, or a stream's newest label with entries, else its current one. */
export function findLabel(app: App, text: string): Bytes | undefined {
  const heads = app.hubLog.view.value.labels;
  if (/^[0-9a-f]{64}$/.test(text) && heads.has(text)) return fromHex(text);
  const labels = labelsOf(app, text);
  const open = labels.filter(({ isOpen }) => isOpen);
  return (labels.findLast(({ label }) => heads.has(hex(label))) ?? open[Math.floor(open.length / 2)])?.label;
}
