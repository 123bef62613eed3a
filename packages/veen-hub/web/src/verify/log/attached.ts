/** Attachments: the root over their content ids, and a body that lists them (core §4.6, I5). */

import { H, Ht } from "../crypto/hash.ts";
import { type Bytes, equal, utf8 } from "../wire/bytes.ts";
import { decodeObject } from "../wire/codec.ts";
import { OpenError } from "../wire/errors.ts";
import type { AttachmentRef, PayloadHeader } from "../wire/schema.ts";
import type { Opened } from "./msg.ts";

const ATTACHED = H(utf8("veen.attached.v1"));

/** What a message says: its body without the list of attachments, and the list. */
export interface Content {
  readonly schema: Bytes;
  readonly body: Bytes;
  readonly attachments: readonly AttachmentRef[];
}

/** Return the root over content ids; the root is hashed even if there is one peak, or none (RESOLUTIONS B6). */
export function attRoot(coids: readonly Bytes[]): Bytes {
  const peaks: Bytes[] = [];
  for (const [at, coid] of coids.entries()) {
    let made = coid;
    for (let count = at + 1; count % 2 === 0; count /= 2) made = Ht("veen/att-node", peaks.pop() as Bytes, made);
    peaks.push(made);
  }
  return Ht("veen/att-root", ...peaks.reverse());
}

/** Check that a header commits to exactly these attachments; the messages are veen-core's (core §4.6, I5). */
export function checkAttachments({ att_root: claimed }: PayloadHeader, coids: readonly Bytes[]): void {
  if (claimed === null && coids.length === 0) return;
  if (claimed === null) throw new OpenError(`${coids.length} attachments, but payload_hdr has no att_root (core §4.6)`);
  if (!equal(claimed, attRoot(coids))) throw new OpenError("payload_hdr.att_root (core §4.6): is not the root of these attachments");
}

/** Return the content of an opened message; refuse a list of attachments that is not the one of its header (I5). */
export function contentOf({ header, body }: Opened): Content {
  if (!equal(header.schema, ATTACHED)) return { schema: header.schema, body, attachments: [] };
  const attached = decodeObject("Attached", body);
  const root = attRoot(attached.attachments.map(({ coid }) => coid));
  if (header.att_root === null || !equal(header.att_root, root)) {
    throw new OpenError("payload_hdr.att_root is not the root of the attachments that the body lists (core §4.6)");
  }
  return attached;
}
