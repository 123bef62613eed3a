/** The bounds on sizes (core §14, §14.1); a hub may lower them, and its registry says so. */

import type { Limits } from "../wire/schema.ts";

/** The largest value of each limit, which is its default too. */
export const MAXIMA: Limits = {
  max_msg_bytes: 1_048_576n,
  max_hdr_bytes: 16_384n,
  max_body_bytes: 1_048_320n,
  max_attachments_per_msg: 1_024n,
  max_attachment_bytes: 67_108_864n,
  max_chunk_bytes: 67_108_864n,
  max_checkpoint_interval: 65_536n,
  max_cap_rate_per_sec: 100_000n,
  max_cap_rate_burst: 1_000_000n,
  max_epoch_skew_sec: 60n,
};
/** Bytes that an entry may take beside its MSG: frame header and RECEIPT (core §4.8.1). */
export const ENTRY_OVERHEAD = 1_024n;
const MAY_BE_ZERO = new Set(["max_attachments_per_msg", "max_attachment_bytes", "max_epoch_skew_sec"]);

/** Return what is wrong with the limits of a registry; undefined if nothing is (core §14.1). */
export function limitsFault(limits: Limits): string | undefined {
  for (const [name, most] of Object.entries(MAXIMA) as [keyof Limits, bigint][]) {
    const least = MAY_BE_ZERO.has(name) ? 0n : 1n;
    if (limits[name] < least) return `${name} must be an integer of at least ${least}`;
    if (limits[name] > most) {
      return `${name} = ${limits[name]} is above the maximum ${most}; limits may only be lowered (core §14.1)`;
    }
  }
  const needed = limits.max_msg_bytes + ENTRY_OVERHEAD;
  if (limits.max_chunk_bytes >= needed) return undefined;
  return (
    `max_chunk_bytes = ${limits.max_chunk_bytes} is too small for one entry of max_msg_bytes = ` +
    `${limits.max_msg_bytes}; set it to at least ${needed}`
  );
}
