/** Signed notes, and the tree heads in them (C2SP signed-note, tlog-checkpoint, tlog-cosignature). */

import { H } from "../crypto/hash.ts";
import { isValid } from "../crypto/signatures.ts";
import {
  base64,
  type Bytes,
  compare,
  concat,
  equal,
  fromBase64,
  fromUtf8,
  hex,
  utf8,
  view,
} from "../wire/bytes.ts";
import { DecodeError, SignatureError } from "../wire/errors.ts";

export const ED25519 = 1;
export const COSIGNATURE = 4;
const MAX_SIGNATURES = 64;
export const MAX_NOTE_BYTES = 131_072;
const MAX_TIME = 2n ** 63n - 1n;
const MAX_SIZE = 2n ** 63n - 1n;
const NOTE = "note (C2SP signed-note)";
const VKEY = "verifier key (C2SP signed-note)";
const HEAD = "checkpoint (C2SP tlog-checkpoint)";
const CONTROL = /[\x00-\x09\x0b-\x1f]/;
/** What Python calls white space. */
const SPACE = /[\s\x1c-\x1f\x85]/;

/** One signature line. */
export interface NoteSignature {
  readonly name: string;
  readonly keyId: Bytes;
  readonly signature: Bytes;
}

/** A text that ends with a newline, and its signatures; parsing verifies none of them. */
export interface Note {
  readonly text: string;
  readonly signatures: readonly NoteSignature[];
}

/** A public key with its name and signature type. */
export interface NoteKey {
  readonly name: string;
  readonly kind: number;
  readonly public: Bytes;
}

/** A tree head with its note. */
export interface SignedHead {
  readonly origin: string;
  readonly size: bigint;
  readonly root: Bytes;
  readonly extensions: readonly string[];
  readonly note: Note;
}

function parseNote(data: Uint8Array): Note {
  if (data.length > MAX_NOTE_BYTES) {
    throw new DecodeError(`has ${data.length} bytes, at most ${MAX_NOTE_BYTES} are allowed`, NOTE);
  }
  const whole = fromUtf8(data);
  if (whole === undefined) throw new DecodeError("is not UTF-8", NOTE);
  if (CONTROL.test(whole)) throw new DecodeError("contains a control character", NOTE);
  const at = whole.lastIndexOf("\n\n");
  if (at < 0) throw new DecodeError("has no empty line between text and signatures", NOTE);
  return { text: whole.slice(0, at + 1), signatures: parseSignatures(whole.slice(at + 2)) };
}

function parseSignatures(lines: string): NoteSignature[] {
  if (!lines.endsWith("\n")) throw new DecodeError("does not end with a newline", NOTE);
  const found = lines.slice(0, -1).split("\n");
  if (found.length > MAX_SIGNATURES) {
    throw new DecodeError(`has ${found.length} signatures, at most ${MAX_SIGNATURES} are allowed`, NOTE);
  }
  return found.map((line) => {
    const parts = line.split(" ");
    if (parts.length !== 3 || parts[0] !== "\u2014")
      throw new DecodeError("has a line that is not a signature", NOTE);
    const value = decodeBase64(parts[2] as string, NOTE);
    if (value.length <= 4) throw new DecodeError("has a signature without content", NOTE);
    return { name: checkName(parts[1] as string, NOTE), keyId: value.slice(0, 4), signature: value.slice(4) };
  });
}

function checkName(name: string, where: string): string {
  if (name === "" || name.includes("+") || SPACE.test(name) || CONTROL.test(name)) {
    throw new DecodeError(`${quote(name.slice(0, 80))} is not a key name`, where);
  }
  return name;
}

/** Quote text as Python does, in the usual cases. */
export function quote(text: string): string {
  const mark = text.includes("'") && !text.includes('"') ? '"' : "'";
  const escaped = text
    .replaceAll("\\", "\\\\")
    .replaceAll("\t", "\\t")
    .replaceAll("\n", "\\n")
    .replaceAll("\r", "\\r");
  return mark + (mark === "'" ? escaped.replaceAll("'", "\\'") : escaped) + mark;
}

function decodeBase64(text: string, where: string): Bytes {
  const plain = /^[A-Za-z0-9+/]*={0,2}$/.test(text) && text.length % 4 === 0;
  if (!plain) throw new DecodeError("contains text that is not base64", where);
  const data = fromBase64(text);
  if (data === undefined) throw new DecodeError("contains base64 that is not canonical", where);
  return data;
}

/** Parse a signed checkpoint; no signature is verified. */
export function parseSignedHead(data: Uint8Array): SignedHead {
  const note = parseNote(data);
  const lines = note.text.split("\n");
  const [origin, size, root, ...extensions] = lines.slice(0, -1);
  if (lines.length < 4 || lines.at(-1) !== "" || lines.slice(0, -1).includes("")) {
    throw new DecodeError("want at least three lines, none of them empty", HEAD);
  }
  if (!/^(?:0|[1-9][0-9]{0,18})$/.test(size as string) || BigInt(size as string) > MAX_SIZE) {
    throw new DecodeError(`${quote((size as string).slice(0, 40))} is not a tree size`, HEAD);
  }
  const digest = decodeBase64(root as string, HEAD);
  if (digest.length !== 32) throw new DecodeError(`want a hash of 32 bytes, found ${digest.length}`, HEAD);
  return { origin: origin as string, size: BigInt(size as string), root: digest, extensions, note };
}

export function keyIdOf(key: NoteKey): Bytes {
  return H(concat(utf8(`${key.name}\n`), Uint8Array.of(key.kind), key.public)).slice(0, 4);
}

/** Parse a verifier key in its one-line form. */
export function parseKey(text: string): NoteKey {
  const [first, id, ...rest] = text.split("+");
  if (first === undefined || id === undefined || rest.length === 0) {
    throw new DecodeError("want <name>+<key id>+<base64>", VKEY);
  }
  const name = checkName(first, VKEY);
  const value = decodeBase64(rest.join("+"), VKEY);
  if (value[0] !== ED25519 && value[0] !== COSIGNATURE) {
    throw new DecodeError("its signature type is not Ed25519 (1) or cosignature/v1 (4)", VKEY);
  }
  if (value.length !== 33)
    throw new DecodeError(`want a public key of 32 bytes, found ${value.length - 1}`, VKEY);
  const key = { name, kind: value[0], public: value.slice(1) };
  const expected = hex(keyIdOf(key));
  if (id !== expected) {
    throw new DecodeError(`its key id is ${id.slice(0, 16)}, name and key give ${expected}`, VKEY);
  }
  return key;
}

/** Return the one-line form of a key. */
export function keyText(key: NoteKey): string {
  return `${key.name}+${hex(keyIdOf(key))}+${base64(concat(Uint8Array.of(key.kind), key.public))}`;
}

export function cosignedAt(signature: Bytes): bigint {
  return view(signature).getBigUint64(0);
}

async function isSigned(key: NoteKey, text: string, signature: Bytes): Promise<boolean> {
  const timed = key.kind === COSIGNATURE;
  if (signature.length !== (timed ? 72 : 64)) return false;
  if (!timed) return isValid(key.public, utf8(text), signature);
  const time = cosignedAt(signature);
  if (time > MAX_TIME) return false;
  return isValid(key.public, utf8(`cosignature/v1\ntime ${time}\n${text}`), signature.slice(8));
}

/** Return which of the keys signed, each with its newest signature; throw if one of them does not verify. */
export async function verifiedSignatures(note: Note, keys: readonly NoteKey[]): Promise<Map<NoteKey, Bytes>> {
  const found = new Map<NoteKey, Bytes>();
  for (const key of keys) {
    const id = keyIdOf(key);
    const made = note.signatures.filter((line) => line.name === key.name && equal(line.keyId, id));
    const signatures = [...new Map(made.map((line) => [hex(line.signature), line.signature])).values()];
    for (const signature of signatures) {
      if (!(await isSigned(key, note.text, signature))) {
        throw new SignatureError(`the signature of ${key.name} does not verify (C2SP signed-note)`);
      }
    }
    const newest = signatures.sort(compare).at(-1);
    if (newest !== undefined) found.set(key, newest);
  }
  return found;
}
