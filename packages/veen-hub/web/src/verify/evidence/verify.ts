/** `verifyFiles`: what `veen verify FILE… --trust HUB_ID --witnesses POLICY` does, on files in memory. */

import { type Bytes, utf8 } from "../wire/bytes.ts";
import { VeenError } from "../wire/errors.ts";
import type { HubIdentity } from "../wire/schema.ts";
import { isPinned } from "../log/identity.ts";
import { SIGNATURE, verifyExport } from "../export/verify.ts";
import type { Folder } from "../export/sequence.ts";
import { MANIFEST } from "../export/range.ts";
import { decodeObject } from "../wire/codec.ts";
import { isPart } from "../bundle/part.ts";
import { verifyParts } from "../bundle/verify.ts";
import { parsePolicy, type WitnessPolicy } from "../hublog/policy.ts";
import { type AnyThing, baseName, type EvidenceFile, recognize, type Recognized } from "./recognize.ts";
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

/** The verdicts, and what they rest on. */
export interface Report {
  readonly verdicts: readonly Verdict[];
  /** The keys of the pinned hub, if a file has them. */
  readonly identity: HubIdentity | null;
  readonly policy: WitnessPolicy | null;
}

/** Verify files together; return one verdict for each object in them, in the order of the files. */
export async function verifyFiles(
  files: readonly EvidenceFile[],
  trust: Trust = {},
): Promise<readonly Verdict[]> {
  return (await reportOn(files, trust)).verdicts;
}

/** Verify files together; return the verdicts, and what they rest on. */
export async function reportOn(files: readonly EvidenceFile[], trust: Trust = {}): Promise<Report> {
  const policy = trust.policy ? parsePolicy(utf8(trust.policy)) : null;
  const now = trust.now ?? BigInt(Math.floor(Date.now() / 1000));
  const pin = trust.pin ?? null;
  const found: Recognized[] = [];
  const unreadable: Verdict[] = [];
  const { exports, others } = splitExports(files);
  const parts = others.filter(({ bytes }) => isPart(bytes));
  for (const { name, bytes } of others) {
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
  const verdicts = [
    ...(await verifier.verdicts()),
    ...(await verifyParts(parts, pin, policy)),
    ...unreadable,
  ];
  for (const [where, folder] of exports) verdicts.push(await verifyExport(where === "" ? "export" : where, folder, pin, policy));
  return { verdicts, identity, policy };
}

interface Split {
  readonly exports: ReadonlyMap<string, Folder>;
  readonly others: readonly EvidenceFile[];
}

const folderOf = (name: string): string => name.slice(0, Math.max(0, name.lastIndexOf("/")));

/** Set the files of exports apart: a folder with a manifest is one export, as `veen verify FOLDER` takes it. */
function splitExports(files: readonly EvidenceFile[]): Split {
  const roots = new Set(
    files.filter(({ name }) => baseName(name) === MANIFEST).map(({ name }) => folderOf(name)),
  );
  const exports = new Map<string, Map<string, Bytes>>();
  const others: EvidenceFile[] = [];
  const flat = listedFlat(files);
  for (const file of files) {
    const folder = folderOf(file.name);
    if (!roots.has(folder) || (folder === "" && flat !== null && !flat.has(file.name))) {
      others.push(file);
      continue;
    }
    exports.set(
      folder,
      (exports.get(folder) ?? new Map<string, Bytes>()).set(baseName(file.name), file.bytes),
    );
  }
  return { exports, others };
}

/** Return the names of an export whose files were given without their folder; null if there is none. */
function listedFlat(files: readonly EvidenceFile[]): ReadonlySet<string> | null {
  const manifest = files.find(({ name }) => name === MANIFEST);
  if (manifest === undefined) return null;
  try {
    const { files: listed } = decodeObject("Manifest", manifest.bytes);
    return new Set([...listed.map(({ name }) => name), MANIFEST, SIGNATURE]);
  } catch (error) {
    if (error instanceof VeenError) return null;
    throw error;
  }
}

/** Return the pinned hub's identity from the files: the one with the most keys, first of all a hub-identity. */
async function pinnedIdentity(found: readonly Recognized[], pin: Bytes | null): Promise<HubIdentity | null> {
  if (pin === null) return null;
  let best: HubIdentity | null = null;
  const things = ["HubIdentity", "HubEvidence", "ResultFile"].flatMap((kind) =>
    found.filter(({ thing }) => thing.kind === kind),
  );
  for (const shown of things.flatMap(({ thing }) => identitiesIn(thing))) {
    if (!(await isPinned(shown, pin))) continue;
    if (best === null || shown.hub_keys.length > best.hub_keys.length) best = shown;
  }
  return best;
}

/** Return the identities that an object carries. */
function identitiesIn(thing: AnyThing): readonly HubIdentity[] {
  if (thing.kind === "HubIdentity") return [thing.value];
  if (thing.kind === "HubEvidence") return [thing.value.identity];
  return thing.kind === "ResultFile" ? thing.value.evidence.identities : [];
}
