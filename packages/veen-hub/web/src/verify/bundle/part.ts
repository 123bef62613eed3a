/** The layout of one part of a bundle: records, index, and the signed header as its trailer (P6). */

import { Ht } from "../crypto/hash.ts";
import { type Bytes, fromUtf8, utf8, view } from "../wire/bytes.ts";
import { decodeObject, encodeObject } from "../wire/codec.ts";
import { DecodeError, VerificationError } from "../wire/errors.ts";
import type { BundleHeader, PartTrailer } from "../wire/schema.ts";

export const SECTION = "RESOLUTIONS P6";
export const MAGIC = utf8("veen-bundle 1\n");
const END = "VEENPART";
const FOOTER_SIZE = 12;
const MAX_HEADER_BYTES = 1_048_576;
const FOOTER = `bundle footer (${SECTION})`;

/** A bundle, or one of its parts, does not verify; names the part and the entry, as far as they are known. */
export class BundleError extends VerificationError {
  constructor(
    found: string,
    clause = SECTION,
    place: { part?: number; seq?: bigint } = {},
    action: string | null = null,
  ) {
    const places = [
      ...(place.part === undefined ? [] : [`part ${place.part}`]),
      ...(place.seq === undefined ? [] : [`stream_seq ${place.seq}`]),
    ];
    const at = places.length > 0 ? `${places.join(", ")}: ` : "";
    super(`${at}${found.replaceAll(` (${clause})`, "")} (${clause})`, action);
  }
}

/** A file that begins and ends like a part of a bundle; nothing is verified yet. */
export interface Part {
  readonly name: string;
  readonly data: Bytes;
  readonly trailer: PartTrailer;
  /** Bytes before the trailer. */
  readonly contentSize: number;
}

export function isPart(data: Uint8Array): boolean {
  return data.length >= MAGIC.length && MAGIC.every((byte, at) => data[at] === byte);
}

/** Read the trailer of a part; throw if the file does not end like a part. */
export function readPart(name: string, data: Bytes): Part {
  const footer = data.subarray(Math.max(0, data.length - FOOTER_SIZE));
  if (footer.length !== FOOTER_SIZE || fromUtf8(footer.subarray(4)) !== END) {
    throw new DecodeError("the file does not end like a part of a bundle: it was cut or altered", FOOTER);
  }
  const size = view(footer).getUint32(0);
  if (size > MAX_HEADER_BYTES) {
    throw new DecodeError(
      `announces a trailer of ${size} bytes, at most ${MAX_HEADER_BYTES} are allowed`,
      FOOTER,
    );
  }
  const start = data.length - FOOTER_SIZE - size;
  if (start < 0) throw new DecodeError(`announces a trailer of ${size} bytes in a file of ${data.length}`);
  const trailer = decodeObject("PartTrailer", data.slice(start, data.length - FOOTER_SIZE));
  return { name, data, trailer, contentSize: start };
}

/** Return the id of a bundle: the hash of its header, which has the hash of every part. */
export function bundleId(header: BundleHeader): Bytes {
  return Ht("veen/bundle", encodeObject("BundleHeader", header));
}

export function isHeartbeat(header: BundleHeader): boolean {
  return header.to_seq < header.from_seq;
}
