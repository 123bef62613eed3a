/** `verifyFiles`: what `veen verify FILE… --trust HUB_ID --witnesses POLICY` does, on files in memory. */

import { type Bytes, utf8 } from "../wire/bytes.ts";
import { VeenError } from "../wire/errors.ts";
import type { HubIdentity } from "../wire/schema.ts";
import { isPinned } from "../log/identity.ts";
import { isPart } from "../bundle/part.ts";
import { verifyParts } from "../bundle/verify.ts";
import { parsePolicy } from "../hublog/policy.ts";
import { type EvidenceFile, recognize, type Recognized } from "./recognize.ts";
import { EvidenceVerifier } from "./verifier.ts";
import { type Verdict, verdict } from "./verdict.ts";

/** Against what files are verified. */
export interface Trust {
  /** The hub_id or the first hub_pk of the hub that the user confirmed. */
  readonly pin?: Bytes | null;
  /** The text of a witness policy. */
  readonly policy?: string | null;
  /** Unix time in seconds. */
  readonly now?: bigint;
}

/** Verify files together; return one verdict for each object in them, in the order of the files. */
export async function verifyFiles(files: readonly EvidenceFile[], trust: Trust = {}): Promise<Verdict[]> {
  const policy = trust.policy ? parsePolicy(utf8(trust.policy)) : null;
  const now = trust.now ?? BigInt(Math.floor(Date.now() / 1000));
  const pin = trust.pin ?? null;
  const found: Recognized[] = [];
  const unreadable: Verdict[] = [];
  const parts = files.filter(({ bytes }) => isPart(bytes));
  for (const { name, bytes } of files) {
    if (isPart(bytes)) continue;
    try {
      found.push(...recognize(name, bytes));
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      unreadable.push(verdict(name, "unknown", false, error.full));
    }
  }
  const identity = await pinnedIdentity(found, pin);
  const verifier = new EvidenceVerifier(found, pin, identity, now, policy);
  return [...(await verifier.verdicts()), ...(await verifyParts(parts, pin, policy)), ...unreadable];
}

/** Return the pinned hub's identity from the files; the one with the most keys. */
async function pinnedIdentity(found: readonly Recognized[], pin: Bytes | null): Promise<HubIdentity | null> {
  if (pin === null) return null;
  let best: HubIdentity | null = null;
  for (const { thing } of found) {
    const shown = thing.kind === "HubIdentity" ? thing.value : thing.kind === "HubEvidence" ? thing.value.identity : null;
    if (shown === null || !(await isPinned(shown, pin))) continue;
    if (best === null || shown.hub_keys.length > best.hub_keys.length) best = shown;
  }
  return best;
}

