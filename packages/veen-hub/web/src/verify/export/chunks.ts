/** Verify exported chunk files, each with its summary and the peaks before it (core §4.8.3). */

import { frameSize, unframe } from "../log/entry.ts";
import { Mmr } from "../log/mmr.ts";
import { type Bytes, equal, hex, view } from "../wire/bytes.ts";
import { decode, encode } from "../wire/cbor.ts";
import { decodeObject, encodeObject } from "../wire/codec.ts";
import { DecodeError, VeenError } from "../wire/errors.ts";
import type { PrunedHead } from "../wire/schema.ts";
import { CheckpointQueue, type IndexedItem, type RangeVerifier } from "./range.ts";
import { damaged, type Folder, inFile, readSequence, readSmall } from "./sequence.ts";

const FSCK = "run `veen hub fsck`";
const CHUNK = /^chunk-([0-9a-f]{64})-(\d{20})-(\d{20})\.(log|pruned)$/;

interface Chunk {
  readonly name: string;
  readonly label: string;
  readonly start: bigint;
  readonly end: bigint;
  readonly kind: string;
}

const padded = (seq: bigint): string => seq.toString().padStart(20, "0");

/** Verify every chunk of an export; throw if a file is left that belongs to none. */
export async function checkChunks(
  folder: Folder,
  verifier: RangeVerifier,
  listed: ReadonlySet<string>,
): Promise<void> {
  const label = hex(verifier.manifest.label);
  const names = new Set(listed);
  const chunks = [...names]
    .flatMap((name) => parseName(name) ?? [])
    .sort((a, b) => (a.start < b.start ? -1 : 1));
  const checkpointName = (upto: bigint): string => `checkpoint-${label}-${padded(upto)}.cbor`;
  const checkpoints = new CheckpointQueue(checkpointFiles(folder, label, names), verifier, checkpointName);
  await checkpoints.verifyDue();
  for (const chunk of chunks) {
    if (chunk.label !== label || chunk.start !== verifier.tree.size + 1n) {
      throw damaged(chunk.name, `does not follow entry ${verifier.tree.size} of the label`);
    }
    names.delete(chunk.name);
    names.delete(summaryName(chunk));
    await checkPeaks(folder, verifier, label, names);
    await checkChunk(folder, verifier, chunk, checkpoints);
  }
  await checkPeaks(folder, verifier, label, names);
  checkpoints.checkEmpty();
  const [left] = [...names].sort();
  if (left !== undefined) throw damaged(left, "does not belong to the exported chunks");
}

function parseName(name: string): Chunk | undefined {
  const found = CHUNK.exec(name);
  if (found === null) return undefined;
  const [, label, start, end, kind] = found as unknown as [string, string, string, string, string];
  return { name, label, start: BigInt(start), end: BigInt(end), kind };
}

function summaryName({ label, start, end }: Chunk): string {
  return `chunk-${label}-${padded(start)}-${padded(end)}.summary`;
}

/** Return the checkpoints in order; remove their names from `names`. */
function checkpointFiles(folder: Folder, label: string, names: Set<string>): Iterator<IndexedItem> {
  const stem = `checkpoint-${label}-`;
  const found = [...names].filter((name) => name.startsWith(stem)).sort();
  for (const name of found) {
    names.delete(name);
    const digits = name.slice(stem.length).replace(/\.cbor$/, "");
    if (!/^[0-9]{20}$/.test(digits)) throw damaged(name, "is not the name of a checkpoint");
  }
  return found
    .map((name): IndexedItem => [0, readSmall(folder, name) as Bytes, BigInt(name.slice(stem.length, -5))])
    [Symbol.iterator]();
}

/** Check the peaks before a chunk, which make it verifiable alone, or those after the last chunk. */
async function checkPeaks(
  folder: Folder,
  verifier: RangeVerifier,
  label: string,
  names: Set<string>,
): Promise<void> {
  const { size, peaks } = verifier.tree;
  if (size === 0n) return;
  const name = `peaks-${label}-${padded(size)}.cbor`;
  const content = readSmall(folder, name);
  if (content === undefined) throw damaged(name, "is missing");
  const item = await inFile(name, () => {
    const found = decode(content);
    if (!Array.isArray(found) || !found.every((peak) => peak instanceof Uint8Array)) {
      throw new DecodeError("want an array of peaks", "peaks (core §4.8.3)");
    }
    const wrong = found.find((peak) => peak.length !== 32);
    if (wrong !== undefined) throw new DecodeError(`want NodeHash of 32 bytes, found ${wrong.length}`);
    return found as Bytes[];
  });
  if (item.length !== peaks.length || !item.every((peak, at) => equal(peak, peaks[at] as Bytes))) {
    throw damaged(name, `does not contain the peaks after entry ${size}`);
  }
  names.delete(name);
}

async function checkChunk(
  folder: Folder,
  verifier: RangeVerifier,
  chunk: Chunk,
  checkpoints: CheckpointQueue,
): Promise<void> {
  const data = folder.get(chunk.name) as Bytes;
  const size = BigInt(data.length);
  if (size > verifier.registry.limits.max_chunk_bytes) {
    throw damaged(chunk.name, `has ${size} bytes, more than max_chunk_bytes (core §4.8.2)`);
  }
  const hashes = new Mmr();
  const entries =
    chunk.kind === "pruned" ? pruned(folder, verifier, chunk) : whole(data, verifier, chunk.name);
  for await (const digest of entries) {
    hashes.add(digest);
    await checkpoints.verifyDue();
  }
  const { tree } = verifier;
  const expected = encodeObject("ChunkSummary", {
    label: verifier.manifest.label,
    start_seq: chunk.start,
    end_seq: chunk.end,
    mmr_root_end: tree.root,
    entry_count: hashes.size,
    total_bytes: size,
    entry_hashes_root: hashes.root,
  });
  if (tree.size !== chunk.end) {
    throw damaged(chunk.name, `ends at entry ${tree.size}, but its name says ${chunk.end}`, data.length);
  }
  const summary = summaryName(chunk);
  const held = readSmall(folder, summary);
  if (held === undefined) throw damaged(summary, "is missing");
  if (!equal(held, expected)) throw damaged(summary, "does not match its chunk (core §4.8.3)");
}

/** Verify every entry of a chunk; yield their entry hashes. */
async function* whole(data: Bytes, verifier: RangeVerifier, name: string): AsyncGenerator<Bytes> {
  for (let at = 0; at < data.length;) {
    let size: number;
    try {
      size = frameSize(data, at);
    } catch (error) {
      throw error instanceof DecodeError ? damaged(name, error.full, at, FSCK) : error;
    }
    if (at + size > data.length) throw damaged(name, `an entry of ${size} bytes is cut short`, at, FSCK);
    const [entry] = await inFile(name, () => unframe(data, at), at);
    await verifier.accept(entry, name, at);
    yield entry.entryHash;
    at += size;
  }
}

/** Verify what retention has left of a chunk (COMP0.1). */
async function* pruned(folder: Folder, verifier: RangeVerifier, chunk: Chunk): AsyncGenerator<Bytes> {
  const { name, end } = chunk;
  const first = verifier.tree.size + 1n;
  const places: number[] = [];
  let ended = false;
  for (const [offset, item] of readSequence(folder, name)) {
    if (ended) throw damaged(name, "continues after the table of its entries' offsets", offset);
    try {
      if (offset === 0) {
        checkHead(decodeObject("PrunedHead", item), verifier, chunk);
        continue;
      }
      places.push(offset);
      ended = (item[0] as number) >> 5 === 2;
      if (ended) {
        if (equal(item, encodeOffsets(places))) continue;
        throw new DecodeError("the table does not contain the offsets of the entries");
      }
    } catch (error) {
      throw error instanceof VeenError ? damaged(name, error.full, offset) : error;
    }
    const kept = await inFile(name, () => decodeObject("PrunedEntry", item), offset);
    await verifier.acceptPruned(kept, name, offset);
    yield kept.entry_hash;
  }
  if (!ended || verifier.tree.size !== end) {
    const count = verifier.tree.size + 1n - first;
    throw damaged(name, `ends after ${count} entries, before the table of their offsets`);
  }
}

function checkHead(head: PrunedHead, verifier: RangeVerifier, chunk: Chunk): void {
  const first = verifier.tree.size + 1n;
  if (!equal(head.label, verifier.manifest.label) || head.start_seq !== first || head.end_seq !== chunk.end) {
    throw new DecodeError("the head has another label or range than the file name");
  }
  const count = chunk.end + 1n - first;
  if (BigInt(head.sizes.length) !== count) {
    throw new DecodeError(`the head lists ${head.sizes.length} sizes for ${count} entries`);
  }
}

function encodeOffsets(offsets: readonly number[]): Bytes {
  const made = new Uint8Array(4 * offsets.length);
  offsets.forEach((offset, at) => view(made).setUint32(4 * at, offset));
  return encode(made);
}
