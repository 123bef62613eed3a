/** Streams, epochs and labels: how a label is derived (core §2, §3.2, §12, B12, B13, H4). */

import { H, Ht } from "../crypto/hash.ts";
import { type Bytes, equal, fromHex, u64be, utf8 } from "../wire/bytes.ts";
import { U64_MAX } from "../wire/cbor.ts";

/** Return `H(utf8(name))`; a name of 64 hex digits is the id itself. */
export function streamId(name: string): Bytes {
  return (name.length === 64 ? fromHex(name) : undefined) ?? H(utf8(name));
}

export function routingKey(hubId: Bytes): Bytes {
  return Ht("veen/routing_key", hubId);
}

export function labelOf(routing: Bytes, stream: Bytes, epoch: bigint): Bytes {
  return Ht("veen/label", routing, stream, u64be(epoch));
}

/** Return the label on which a hub authorizes tokens (H5). */
export function controlLabel(hubId: Bytes): Bytes {
  return labelOf(routingKey(hubId), streamId("veen/control"), 0n);
}

export function epochAt(now: bigint, epochSec: bigint): bigint {
  return epochSec > 0n ? now / epochSec : 0n;
}

/** How a label was derived, for a verifier that knows the stream. */
export interface LabelOrigin {
  readonly routing: Bytes;
  readonly stream: Bytes;
  readonly epochSec: bigint;
  readonly maxSkewSec: bigint;
}

/** Return the epochs whose labels a hub accepts at `now` (core §12). */
export function epochsAround({ epochSec, maxSkewSec }: Pick<LabelOrigin, "epochSec" | "maxSkewSec">, now: bigint): bigint[] {
  const current = epochAt(now, epochSec);
  const skew = epochSec === 0n ? 0n : maxSkewSec / epochSec;
  const last = current + skew < U64_MAX ? current + skew : U64_MAX;
  const epochs: bigint[] = [];
  for (let epoch = current > skew ? current - skew : 0n; epoch <= last; epoch += 1n) epochs.push(epoch);
  return epochs;
}

/** Return whether the label belongs to an epoch that a hub accepts at `now` (core §12). */
export function isAccepted(origin: LabelOrigin, label: Bytes, now: bigint): boolean {
  return epochsAround(origin, now).some((epoch) => equal(labelOf(origin.routing, origin.stream, epoch), label));
}
