/** A stream by its name: its labels, one for each epoch that has entries (core §2, §12). */
import { epochsAround, labelOf } from "../../verify/log/stream.ts";
import { type Bytes, fromHex, hex } from "../../verify/wire/bytes.ts";
import type { App } from "../app.ts";
import { originOfStream } from "../label_names.ts";

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
  const origin = originOfStream(hub, name);
  const open = new Set(epochsAround(origin, hub.status.hub_ts));
  const epochs = new Set([...[...heads.values()].flatMap((head) => epochsAround(origin, head.hub_ts)), ...open]);
  const found = [...epochs].sort((a, b) => (a < b ? -1 : 1))
    .map((epoch) => ({ name, epoch, label: labelOf(origin.routing, origin.stream, epoch), isOpen: open.has(epoch) }))
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
