/** Verify an export from its files alone: manifest, hashes, identity, entries, checkpoints, hub head (ADR 0007). */

import { hashLarge, Ht } from "../crypto/hash.ts";
import { isValid } from "../crypto/signatures.ts";
import { checkLogName, headLeaf, noteKeys, verifyHubCheckpoint } from "../hublog/checkpoint.ts";
import { parseSignedHead } from "../hublog/note.ts";
import { cosignedStep, type WitnessPolicy } from "../hublog/policy.ts";
import { verifyInclusion } from "../hublog/tree.ts";
import { hubIdOf, verifyIdentity, verifyIdentitySignature } from "../log/identity.ts";
import { Mmr } from "../log/mmr.ts";
import { verifyConsistency } from "../log/proof.ts";
import { NO_PIN } from "../evidence/verifier.ts";
import { formatUtc, short, type Verdict, verdict } from "../evidence/verdict.ts";
import { type Bytes, compare, equal, hex } from "../wire/bytes.ts";
import { CborMap, encode } from "../wire/cbor.ts";
import { decodeObject } from "../wire/codec.ts";
import { DecodeError, EvidenceError, FAULT, plural, QuorumError, VeenError } from "../wire/errors.ts";
import type { HubHead, HubIdentity, Manifest, Registry } from "../wire/schema.ts";
import { checkChunks } from "./chunks.ts";
import { MANIFEST, MAX_WRITERS, RangeVerifier, type VerifiedRange } from "./range.ts";
import { damaged, type Folder, inFile, readSmall } from "./sequence.ts";
import { checkSet } from "./set.ts";

export const SIGNATURE = "manifest.sig";
const HUB_HEAD = "hub-head.cbor";
const IDENTITY = ["hub-identity.cbor", "hub-identity.sig", "hub-key-map.cbor", "registry.cbor"] as const;
const NO_HUB_HEAD = "the export has no hub checkpoint that covers it, which a witness could have cosigned";
const NOT_CHECKED =
  "NOT CHECKED: client_seq (I9) and tokens (H5) of every writer, because the export has more than " +
  `${MAX_WRITERS.toLocaleString("en")} writers or tokens`;

/** Return the verdict on the files of one export; `where` names the folder. */
export async function verifyExport(
  where: string,
  folder: Folder,
  pin: Bytes | null,
  policy: WitnessPolicy | null,
): Promise<Verdict> {
  if (pin === null) return verdict(where, "export", null, NO_PIN);
  try {
    const content = folder.get(MANIFEST) as Bytes;
    const claimed = decodeObject("Manifest", content).hub_id;
    const derived = hubIdOf(pin);
    const { manifest, made, identity, link } = await check(folder, equal(claimed, derived) ? derived : pin);
    const cosigned = policy === null ? "" : `; ${await checkQuorum(identity, link, policy)}`;
    let why =
      `entries ${manifest.from_seq} to ${manifest.to_seq} of label ${short(manifest.label)}, ` +
      `${plural(made.checkpoints, "checkpoint")}, ${plural(made.pruned, "pruned payload")}; root ${short(made.root)}${cosigned}`;
    if (!made.followedAll) why += `; ${NOT_CHECKED}`;
    const { root, messages } = made;
    const range = { root, size: manifest.to_seq, identity, link, messages };
    return verdict(where, "export", true, why, { complete: made.followedAll, range });
  } catch (error) {
    if (error instanceof VeenError) return verdict(where, "export", false, error.full);
    throw error;
  }
}

/** Say which witnesses cosigned the hub checkpoint of the export; throw unless they are a quorum (P1). */
async function checkQuorum(
  identity: HubIdentity,
  link: HubHead | null,
  policy: WitnessPolicy,
): Promise<string> {
  if (link === null) throw new QuorumError(`${NO_HUB_HEAD} (C2SP tlog-policy)`);
  const signed = parseSignedHead(link.checkpoint);
  checkLogName(identity, signed.origin, policy, identity.hub_id);
  const cosigned = await policy.check(signed, noteKeys(identity, signed.origin));
  return cosignedStep(cosigned, policy, formatUtc);
}

interface Checked {
  readonly manifest: Manifest;
  readonly made: VerifiedRange;
  readonly identity: HubIdentity;
  readonly link: HubHead | null;
}

async function check(folder: Folder, pinned: Bytes): Promise<Checked> {
  const manifest = await readManifest(folder);
  if (!equal(manifest.hub_id, pinned)) {
    throw new VeenError(
      `the export comes from hub ${hex(manifest.hub_id)}, but the pinned hub is ${hex(pinned)}`,
    );
  }
  await checkFiles(folder, manifest);
  const [identity, registry] = await readIdentity(folder, pinned);
  await checkSignature(folder, identity);
  const verifier = await RangeVerifier.of(manifest, identity, registry);
  const listed = new Set(manifest.files.map((file) => file.name));
  for (const name of [...IDENTITY, HUB_HEAD]) listed.delete(name);
  const checkForm = manifest.form === "set" ? checkSet : checkChunks;
  await verifier.verifying(() => checkForm(folder, verifier, listed));
  const made = await verifier.conclude();
  const link = await checkHubHead(folder, manifest, identity, made.root);
  return { manifest, made, identity, link };
}

async function readManifest(folder: Folder): Promise<Manifest> {
  const manifest = await inFile(MANIFEST, () => {
    const found = decodeObject("Manifest", folder.get(MANIFEST) as Bytes);
    new Mmr(found.from_seq - 1n, found.peaks_before);
    return found;
  });
  if (!(manifest.from_seq >= 1n && manifest.from_seq <= manifest.to_seq)) {
    throw damaged(MANIFEST, `${manifest.from_seq} to ${manifest.to_seq} is not a range`);
  }
  const names = manifest.files.map((file) => file.name);
  if (names.slice(1).some((name, at) => (names[at] as string) >= name)) {
    throw damaged(MANIFEST, "files are not in ascending order of names");
  }
  return manifest;
}

async function checkFiles(folder: Folder, manifest: Manifest): Promise<void> {
  const listed = new Set([...manifest.files.map((file) => file.name), MANIFEST]);
  const missing = [...listed].filter((name) => !folder.has(name)).sort();
  for (const name of [...missing, ...IDENTITY.filter((each) => !listed.has(each))])
    throw damaged(name, "is missing");
  for (const name of [...folder.keys()].sort()) {
    if (!listed.has(name) && name !== SIGNATURE) throw damaged(name, "is not in the manifest");
  }
  for (const file of manifest.files) {
    const content = folder.get(file.name) as Bytes;
    const size = BigInt(content.length);
    if (size !== file.size) {
      const at = Number(size < file.size ? size : file.size);
      throw damaged(file.name, `has ${size} bytes, but the manifest says ${file.size}`, at);
    }
    if (!equal(await hashLarge(content), file.digest)) {
      throw damaged(file.name, "does not match its hash in the manifest");
    }
  }
}

/** Read a file that is a signature. */
function signatureIn(content: Bytes): Bytes {
  if (content.length === 64) return content;
  throw new DecodeError(`want Signature of 64 bytes, found ${content.length}`, "", FAULT.SIZE);
}

/** Read identity and registry, and verify them up to the pinned hub_id. */
async function readIdentity(folder: Folder, pinned: Bytes): Promise<[HubIdentity, Registry]> {
  const [record, signature, keyMap, registryName] = IDENTITY;
  const read = (name: string): Bytes => folder.get(name) as Bytes;
  const identity = await inFile(record, async () => {
    const found = decodeObject("HubIdentity", read(record));
    await verifyIdentity(found, pinned);
    return found;
  });
  await inFile(signature, () => verifyIdentitySignature(identity, signatureIn(read(signature))));
  const pairs = identity.hub_keys.map((key) => [key.key_id, key.hub_pk] as const);
  const expected = encode(new CborMap(pairs.sort(([a], [b]) => compare(a, b))));
  if (!equal(read(keyMap), expected)) throw damaged(keyMap, `does not match ${record}`);
  const registry = await inFile(registryName, () => decodeObject("Registry", read(registryName)));
  if (!equal(registry.hub_id, pinned)) throw damaged(registryName, `belongs to hub ${hex(registry.hub_id)}`);
  return [identity, registry];
}

/** Throw if there is a signature of the manifest that no key of the hub made. */
async function checkSignature(folder: Folder, identity: HubIdentity): Promise<void> {
  const content = readSmall(folder, SIGNATURE);
  if (content === undefined) return;
  const signature = await inFile(SIGNATURE, () => signatureIn(content));
  const digest = Ht("veen/export", folder.get(MANIFEST) as Bytes);
  for (const key of identity.hub_keys) if (await isValid(key.hub_pk, digest, signature)) return;
  throw damaged(SIGNATURE, `does not verify for ${MANIFEST} under any key of the hub`);
}

/** Verify the way from the end of the range to a hub checkpoint, if the export has one (P1). */
async function checkHubHead(
  folder: Folder,
  manifest: Manifest,
  identity: HubIdentity,
  root: Bytes,
): Promise<HubHead | null> {
  if (!manifest.files.some((file) => file.name === HUB_HEAD)) return null;
  return inFile(HUB_HEAD, async () => {
    const found = decodeObject("HubHead", readSmall(folder, HUB_HEAD) as Bytes);
    await verifyHubHead(found, identity, manifest, root);
    return found;
  });
}

async function verifyHubHead(
  found: HubHead,
  identity: HubIdentity,
  manifest: Manifest,
  root: Bytes,
): Promise<void> {
  const { head, consistency: proof } = found;
  const signed = parseSignedHead(found.checkpoint);
  if (!equal(head.label, manifest.label))
    throw new EvidenceError("the head is that of another label (RESOLUTIONS P1)");
  if (proof === null) {
    if (head.upto_seq !== manifest.to_seq || !equal(head.mmr_root, root)) {
      throw new EvidenceError(
        `the head is not that of the label at entry ${manifest.to_seq} (RESOLUTIONS P1)`,
      );
    }
  } else {
    if (proof.from_seq !== manifest.to_seq || proof.to_seq !== head.upto_seq) {
      throw new EvidenceError("the consistency proof does not lead from to_seq to the head (RESOLUTIONS P1)");
    }
    verifyConsistency(proof, root, head.mmr_root);
  }
  verifyInclusion(headLeaf(head), found.index, signed.size, found.proof, signed.root);
  await verifyHubCheckpoint(identity, signed, signed.origin, head.hub_ts);
}
