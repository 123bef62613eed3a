/** Recognize what a file holds: one object of any kind, a chunk, or a sequence of objects; as `veen verify` does. */

import { H } from "../crypto/hash.ts";
import { type Entry, splitFrames } from "../log/entry.ts";
import { keyIdOf } from "../log/identity.ts";
import { MAX_NOTE_BYTES, parseSignedHead, type SignedHead } from "../hublog/note.ts";
import { parsePolicy, POLICY_ACTION } from "../hublog/policy.ts";
import { type Bytes, equal, fromHexText, fromUtf8, hex } from "../wire/bytes.ts";
import { CborMap, decode, itemEnd } from "../wire/cbor.ts";
import { decodeAny, type Thing } from "../wire/codec.ts";
import { DecodeError, VeenError } from "../wire/errors.ts";
import { SCHEMA } from "../wire/schema.ts";

/** A file that the user gave; `name` may be a path. */
export interface EvidenceFile {
  readonly name: string;
  readonly bytes: Bytes;
}

/** VEEN bytes that are not a wire object, or deterministic CBOR of an unknown kind. */
export interface Bare {
  readonly kind: "Bare";
  readonly name: string;
}

export type AnyThing =
  | Thing
  | { readonly kind: "Entry"; readonly value: Entry }
  | { readonly kind: "SignedHead"; readonly value: SignedHead }
  | Bare;

/** One object, its bytes, and the file (and position) that it was read from. */
export interface Recognized {
  readonly where: string;
  readonly thing: AnyThing;
  readonly data: Bytes;
}

export const MAX_FILE_BYTES = 256 * 1_048_576;
const MAX_OBJECTS = 4 * 65_536;
const MAX_UNKNOWN_BYTES = 1_048_576;
const MIN_HEX_BYTES = 5;
const FETCH_AGAIN = "fetch it again, or restore it from a copy";
/** What the page leaves to the command: files of a hub's own data directory. */
const COMMAND_ONLY = "this page does not read it; run `veen verify` on it";

export function nameOf(thing: AnyThing): string {
  if (thing.kind === "Entry") return "log entry";
  if (thing.kind === "SignedHead") return "hub checkpoint";
  return thing.kind === "Bare" ? thing.name : SCHEMA[thing.kind].name;
}

export function baseName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1);
}

/** Return the bytes that hexadecimal text spells; other bytes as they are. */
export function unhex(data: Bytes): Bytes {
  const spelled = fromHexText(data);
  return spelled !== undefined && spelled.length >= MIN_HEX_BYTES ? spelled : data;
}

const isArrayOrMap = (data: Uint8Array): boolean => (data[0] as number) >= 0x80 && (data[0] as number) < 0xc0;

/** Return everything in a file; throw if it holds nothing of VEEN. */
export function recognize(where: string, content: Bytes): Recognized[] {
  if (content.length > MAX_FILE_BYTES) {
    throw new VeenError(`${where} is not a VEEN file: it has more than ${MAX_FILE_BYTES} bytes`);
  }
  const data = unhex(content);
  if (data.length === 0) throw new VeenError(`${where} is empty`, FETCH_AGAIN);
  const one = decodeAny(data) ?? recognizeOther(where, data);
  if (one !== undefined) return [{ where, thing: one, data }];
  if (startsWith(data, "VJ1\n") || /^journal-\d{20}\.wal$/.test(baseName(where))) {
    return [{ where, thing: { kind: "Bare", name: "journal segment" }, data }];
  }
  if (startsWith(data, "\x28\xb5\x2f\xfd"))
    return [{ where, thing: { kind: "Bare", name: "compressed chunk" }, data }];
  const wrong = policyError(data);
  if (wrong !== undefined) {
    throw new VeenError(`${where} is not a VEEN file; read as a witness policy: ${wrong}`, POLICY_ACTION);
  }
  const foreign = describeForeign(data);
  if (foreign !== undefined) throw new VeenError(`${where} is not a VEEN file, but ${foreign}`);
  return isArrayOrMap(data) ? sequence(where, data) : chunk(where, data);
}

/** Say why an object that was recognized is left to the command. */
export function commandOnly(thing: AnyThing): string | undefined {
  const isLeft =
    thing.kind === "Bare" && (thing.name === "journal segment" || thing.name === "compressed chunk");
  return isLeft ? COMMAND_ONLY : undefined;
}

function startsWith(data: Uint8Array, text: string): boolean {
  return text.length <= data.length && [...text].every((char, at) => data[at] === char.charCodeAt(0));
}

function recognizeOther(where: string, data: Bytes): AnyThing | undefined {
  const name = baseName(where);
  const text = data.length <= MAX_NOTE_BYTES ? fromUtf8(data) : undefined;
  if (text !== undefined && /^veen-data \d{1,9} [0-9a-f]{64}\n$/.test(text)) {
    return { kind: "Bare", name: "data directory's VERSION" };
  }
  if (text?.includes("\n\n") === true) {
    const head = attempt(() => parseSignedHead(data));
    if (head !== undefined) return { kind: "SignedHead", value: head };
  }
  if (text?.includes("quorum") === true && attempt(() => parsePolicy(data)) !== undefined) {
    return { kind: "Bare", name: "witness policy" };
  }
  if (name.endsWith(".sig")) return signature(where, name, data);
  if (name.length === 64 && name === hex(H(data))) return { kind: "Bare", name: "attachment's ciphertext" };
  return peaks(data) ?? keyMap(data);
}

function attempt<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (error instanceof VeenError) return undefined;
    throw error;
  }
}

function signature(where: string, name: string, data: Bytes): Bare {
  if (data.length !== 64) {
    const found = `a signature has 64 bytes, this file has ${data.length}`;
    throw new VeenError(`${where}: ${found}`, "restore the file from a copy");
  }
  const of = { "hub-identity.sig": "hub-identity", "manifest.sig": "export manifest" }[name] ?? "Ed25519";
  return { kind: "Bare", name: `${of} signature` };
}

function peaks(data: Bytes): Bare | undefined {
  if (data.length > 3 + 64 * 34) return undefined;
  const item = attempt(() => decode(data));
  const isPeaks = Array.isArray(item) && item.length > 0;
  if (!isPeaks || !item.every((each) => each instanceof Uint8Array && each.length === 32)) return undefined;
  return { kind: "Bare", name: "peaks" };
}

function keyMap(data: Bytes): Bare | undefined {
  const item = data.length > 65_536 ? undefined : attempt(() => decode(data));
  if (!(item instanceof CborMap) || item.entries.length === 0) return undefined;
  const isKey = ([id, key]: readonly [unknown, unknown]): boolean =>
    id instanceof Uint8Array &&
    key instanceof Uint8Array &&
    key.length === 32 &&
    equal(id, keyIdOf(key as Bytes));
  return item.entries.every(isKey) ? { kind: "Bare", name: "hub-key-map" } : undefined;
}

function policyError(data: Bytes): string | undefined {
  if (data.length > 1_048_576 || describeForeign(data) !== PLAIN_TEXT) return undefined;
  if (!/^[ \t]*(?:quorum|witness|log)[ \t]/m.test(fromUtf8(data) as string)) return undefined;
  try {
    parsePolicy(data);
  } catch (error) {
    if (error instanceof DecodeError) return error.message;
    throw error;
  }
  return undefined;
}

const PLAIN_TEXT = "plain text";

function describeForeign(data: Bytes): string | undefined {
  if (startsWith(data, "PAR1")) return "a Parquet file: read it with `veen spark` or any Parquet reader";
  const text = fromUtf8(data);
  if (text === undefined || /[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f\x7f]/.test(text)) return undefined;
  if (text.startsWith("-----BEGIN ")) return "PEM text: read it with `openssl`";
  if (text.startsWith("<")) return "XML or HTML text";
  return isJson(text) ? "JSON text: read it with `jq`" : PLAIN_TEXT;
}

function isJson(text: string): boolean {
  if (!text.startsWith("{") && !text.startsWith("[")) return false;
  const first = (text.split("\n", 1)[0] as string).trim();
  if (first === "{" || first === "[") return true;
  try {
    JSON.parse(first);
    return true;
  } catch {
    return false;
  }
}

/** Yield the items of a CBOR sequence (RFC 8742), which may be one item of an unknown kind. */
function sequence(where: string, data: Bytes): Recognized[] {
  const found: Recognized[] = [];
  let left = MAX_UNKNOWN_BYTES;
  for (let at = 0; at < data.length;) {
    let item: Bytes;
    let thing: AnyThing;
    try {
      item = data.slice(at, itemEnd(data, at));
      const known = decodeAny(item);
      if (known === undefined) {
        left -= item.length;
        if (left < 0)
          throw new DecodeError(`more than ${MAX_UNKNOWN_BYTES} bytes of CBOR of an unknown kind`);
        if (!isArrayOrMap(item)) throw new DecodeError("want an array or a map");
        decode(item);
      }
      thing = known ?? { kind: "Bare", name: "CBOR of an unknown kind" };
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      const place = at > 0 ? `from byte ${at} on ` : "";
      throw new VeenError(
        `${where} is damaged, or not a VEEN file: ${place}it holds no object (${error.message})`,
        FETCH_AGAIN,
      );
    }
    const whole = item.length === data.length;
    found.push({ where: whole ? where : `${where} item ${found.length + 1}`, thing, data: item });
    checkCount(where, found);
    at += item.length;
  }
  return found;
}

/** Yield the entries of a chunk (core §4.8.1). */
function chunk(where: string, data: Bytes): Recognized[] {
  const found: Recognized[] = [];
  try {
    for (const entry of splitFrames(data)) {
      found.push({
        where: `${where} entry ${entry.stream_seq}`,
        thing: { kind: "Entry", value: entry },
        data,
      });
      checkCount(where, found);
    }
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    if (
      found.length > 0 ||
      /^chunk-[0-9a-f]{64}-\d{20}(?:\.open|-\d{20}\.(?:log|summary|pruned))$/.test(baseName(where))
    ) {
      throw new VeenError(`${where}: is a damaged chunk: ${error.message}`, "run `veen hub fsck`");
    }
    throw new VeenError(`${where} is not a VEEN file: neither an object nor a chunk (${error.message})`);
  }
  return found;
}

function checkCount(where: string, found: readonly Recognized[]): void {
  if (found.length > MAX_OBJECTS) {
    throw new VeenError(
      `${where} holds more than ${MAX_OBJECTS} objects`,
      "verify an export as a folder (`veen verify FOLDER`), and a data directory with `veen hub fsck`",
    );
  }
}
