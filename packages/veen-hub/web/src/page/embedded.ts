/** Evidence that travels inside the page, as `veen verify --page` writes it; also from another page that was dropped. */

import type { EvidenceFile } from "../verify/evidence/recognize.ts";
import { type Bytes, fromBase64, fromHex, fromUtf8 } from "../verify/wire/bytes.ts";

/** What the sender of a page put into it. Nothing of it is trusted. */
export interface Embedded {
  readonly files: readonly EvidenceFile[];
  /** The hub that the sender names. */
  readonly hub: Bytes | null;
  readonly policy: string | null;
}

const ELEMENT = /<script type="text\/plain" id="veen-evidence">([A-Za-z0-9+/=]*)<\/script>/;

/** Return the evidence in this page; null if it has none. */
export function ownEvidence(): Embedded | null {
  const text = document.getElementById("veen-evidence")?.textContent?.trim() ?? "";
  return text === "" ? null : parse(text);
}

/** Return the evidence in the bytes of a page; null for any other file. */
export function evidenceIn(bytes: Bytes): Embedded | null {
  if (bytes[0] !== 0x3c) return null;
  const found = ELEMENT.exec(fromUtf8(bytes) ?? "")?.[1];
  return found === undefined || found === "" ? null : parse(found);
}

function parse(text: string): Embedded | null {
  const json = fromUtf8(fromBase64(text) ?? new Uint8Array([0xff]));
  if (json === undefined) return null;
  try {
    const { files, hub, policy } = JSON.parse(json) as Record<string, unknown>;
    if (!Array.isArray(files)) return null;
    return {
      files: files.map((each: { name?: unknown; data?: unknown }) => ({
        name: String(each.name),
        bytes: fromBase64(String(each.data)) ?? new Uint8Array(),
      })),
      hub: typeof hub === "string" && hub.length === 64 ? (fromHex(hub) ?? null) : null,
      policy: typeof policy === "string" ? policy : null,
    };
  } catch {
    return null;
  }
}
