/** Labels of named streams: a name, the hub_id and the epoch give the label (core §2, §3.2, §12, B12). */
import { H, Ht } from "../verify/crypto/hash.ts";
import { type Bytes, fromHex, u64be, utf8 } from "../verify/wire/bytes.ts";

/** Return `H(name)`; a name of 64 hex digits is the id itself (B12). */
export function streamId(name: string): Bytes {
  return (/^[0-9a-fA-F]{64}$/.test(name) ? fromHex(name) : undefined) ?? H(utf8(name));
}

/** Return the label of a stream in an epoch of this hub (core §2, §12). */
export function labelOf(hubId: Bytes, stream: string, epoch: bigint): Bytes {
  return Ht("veen/label", Ht("veen/routing_key", hubId), streamId(stream), u64be(epoch));
}

/** Return the epochs whose labels the hub accepts at a time (core §12). */
export function epochsAt(now: bigint, epochSec: bigint, maxSkewSec: bigint): readonly bigint[] {
  if (epochSec === 0n) return [0n];
  const current = now / epochSec;
  const skew = maxSkewSec / epochSec;
  const epochs: bigint[] = [];
  for (let at = current > skew ? current - skew : 0n; at <= current + skew; at += 1n) epochs.push(at);
  return epochs;
}
