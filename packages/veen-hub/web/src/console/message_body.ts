/** An opened body as a person reads it: a record in diagnostic notation, text as text, else hexadecimal bytes. */
import { contentOf } from "../verify/log/attached.ts";
import type { Opened } from "../verify/log/msg.ts";
import { type Bytes, fromUtf8, hex } from "../verify/wire/bytes.ts";
import { CborMap, decode, type Item } from "../verify/wire/cbor.ts";
import { DecodeError, VeenError } from "../verify/wire/errors.ts";

const MAX_HEX_BYTES = 4_096;

/** Return the content of an opened message as text, or why it is refused. */
export function contentText(opened: Opened): string {
  try {
    return bodyText(contentOf(opened).body);
  } catch (error) {
    if (error instanceof VeenError) return error.message;
    throw error;
  }
}

/** Return a body as text; the text is not yet fit for a page: use `foreign`. */
export function bodyText(body: Bytes): string {
  const record = recordText(body);
  if (record !== undefined) return record;
  const text = fromUtf8(body);
  if (text !== undefined) return text;
  const more = body.length > MAX_HEX_BYTES ? `… (${body.length} bytes)` : "";
  return hex(body.subarray(0, MAX_HEX_BYTES)) + more;
}

/** Return canonical CBOR of a map or an array in diagnostic notation (RFC 8949 §8); undefined for anything else. */
export function recordText(bytes: Bytes): string | undefined {
  const major = (bytes[0] ?? 0) >> 5;
  if (major !== 4 && major !== 5) return undefined;
  try {
    return diagnostic(decode(bytes), "");
  } catch (error) {
    if (error instanceof DecodeError) return undefined;
    throw error;
  }
}

function diagnostic(item: Item, indent: string): string {
  if (item === null) return "null";
  if (typeof item === "string") return JSON.stringify(item);
  if (item instanceof Uint8Array) return `h'${hex(item.subarray(0, MAX_HEX_BYTES))}${item.length > MAX_HEX_BYTES ? "…" : ""}'`;
  if (item instanceof CborMap) {
    return block("{", "}", indent, item.entries.map(([key, value]) =>
      `${diagnostic(key, "")}: ${diagnostic(value, `${indent}  `)}`));
  }
  if (Array.isArray(item)) return block("[", "]", indent, item.map((each: Item) => diagnostic(each, `${indent}  `)));
  return String(item);
}

function block(open: string, close: string, indent: string, parts: readonly string[]): string {
  const line = `${open}${parts.join(", ")}${close}`;
  if (line.length <= 72 && !line.includes("\n")) return line;
  return `${open}\n${parts.map((part) => `${indent}  ${part}`).join(",\n")}\n${indent}${close}`;
}

/** Bytes as a dump of 16 per line: offset, hex, printable characters. */
export function dump(bytes: Bytes, max = 2_048): string {
  const lines: string[] = [];
  for (let at = 0; at < Math.min(bytes.length, max); at += 16) {
    const line = bytes.subarray(at, Math.min(at + 16, max));
    const digits = [...line].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...line].map((byte) => (byte >= 0x20 && byte < 0x7f ? String.fromCharCode(byte) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${text}`);
  }
  if (bytes.length > max) lines.push(`… ${bytes.length - max} bytes more`);
  return lines.join("\n");
}
