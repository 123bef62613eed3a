/** An opened body as text, where it is text; else as hexadecimal bytes. */
import { type Bytes, fromUtf8, hex } from "../verify/wire/bytes.ts";

const MAX_HEX_BYTES = 4_096;

/** Return the text of a body, or its first bytes in hex; the text is not yet fit for a page: use `foreign`. */
export function bodyText(body: Bytes): string {
  const text = fromUtf8(body);
  if (text !== undefined) return text;
  const more = body.length > MAX_HEX_BYTES ? `… (${body.length} bytes)` : "";
  return hex(body.subarray(0, MAX_HEX_BYTES)) + more;
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
