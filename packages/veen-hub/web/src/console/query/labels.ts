/** The labels that a query reads: every epoch of every stream, up to the newest hub checkpoint that covers it (P11, P13). */
import { parseSignedHead } from "../../verify/hublog/note.ts";
import { decodeObject } from "../../verify/wire/codec.ts";
import { VeenError } from "../../verify/wire/errors.ts";
import type { HubLogLink } from "../../verify/wire/schema.ts";
import type { App } from "../app.ts";
import { CallError } from "../hub_calls.ts";
import { labelOf } from "../label_names.ts";
import type { LabelEntries, StreamLog } from "../records/stream_log.ts";
import type { ConfirmedHub } from "../trust_state.ts";
import type { QueriedLabel } from "./answer.ts";

/** Read what is new, and return the labels of the log's streams with their way to a hub checkpoint. */
export async function queriedLabels(app: App, hub: ConfirmedHub, log: StreamLog): Promise<readonly QueriedLabel[]> {
  if (hub.status.profile.epoch_sec !== 0n && !app.hubLog.view.value.isComplete) {
    throw new VeenError("the hub log does not list its labels here, so that past epochs of a stream are not known", "use `veen query run`");
  }
  await log.refresh();
  const { labels, isCaughtUp, isWhole, note } = log.view.value;
  if (!isCaughtUp) throw new VeenError(note || "the streams are still being read", "run the query again in a moment");
  if (!isWhole) throw new VeenError("the first entries of a stream are missing here", "use `veen query run`, which proves what was pruned");
  const found: QueriedLabel[] = [];
  for (const name of log.names) {
    const own = labels.filter((each) => each.name === name);
    for (const each of own) found.push(await withLink(app, each));
    if (own.length === 0) {
      found.push({ stream: name, label: labelOf(hub.identity.hub_id, name, 0n), epoch: 0n, entries: [], link: null, checkpoint: null });
    }
  }
  return found;
}

/** End a label at its newest head in the hub log; without one, or if the tab has not read so far, at its last entry. */
async function withLink(app: App, { name, label, epoch, entries }: LabelEntries): Promise<QueriedLabel> {
  const link = await linkOf(app, label);
  const end = Number(link?.head.upto_seq ?? 0n);
  const named = { stream: name, label, epoch };
  if (link === null || end > entries.length) return { ...named, entries, link: null, checkpoint: null };
  return { ...named, entries: entries.slice(0, end), link, checkpoint: parseSignedHead(link.checkpoint).note.text };
}

async function linkOf(app: App, label: LabelEntries["label"]): Promise<HubLogLink | null> {
  try {
    const { head, index, proof, checkpoint } = decodeObject("HubProofResponse", await app.hub.hubLogProof(label));
    await app.hubLog.compare(checkpoint);
    const origin = app.trust.hub.value?.status.hub_log_origin ?? null;
    return { ver: 1n, head, index, head_proof: proof, checkpoint, consistency: null, origin };
  } catch (error) {
    if (error instanceof CallError) return null; // no checkpoint yet, or none that this page can compare
    throw error;
  }
}
