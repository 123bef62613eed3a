/** Labels of streams at one hub, by their names (core §2, §12, B12). */
import type { LabelOrigin } from "../verify/log/stream.ts";
import { labelOf as labelIn, routingKey, streamId } from "../verify/log/stream.ts";
import type { Bytes } from "../verify/wire/bytes.ts";
import type { ConfirmedHub } from "./trust_state.ts";

/** Return the label of a stream in an epoch of this hub. */
export function labelOf(hubId: Bytes, stream: string, epoch: bigint): Bytes {
  return labelIn(routingKey(hubId), streamId(stream), epoch);
}

/** Return how the labels of a stream are derived at a hub. */
export function originOfStream({ identity, status }: ConfirmedHub, stream: string): LabelOrigin {
  return {
    routing: routingKey(identity.hub_id), stream: streamId(stream),
    epochSec: status.profile.epoch_sec, maxSkewSec: status.limits.max_epoch_skew_sec,
  };
}
