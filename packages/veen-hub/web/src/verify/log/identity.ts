/** The identity of a hub: its keys over time, chained to hub_id (core §8.4, B13); RECEIPT and CHECKPOINT under it. */

import { Ht } from "../crypto/hash.ts";
import { type Claim, isValid, verify } from "../crypto/signatures.ts";
import { type Bytes, compare, equal, hex, u64be } from "../wire/bytes.ts";
import { encode, type Item } from "../wire/cbor.ts";
import { encodeObject, writeObject } from "../wire/codec.ts";
import { IdentityError, SignatureError } from "../wire/errors.ts";
import type { Checkpoint, HubIdentity, HubKey, Receipt } from "../wire/schema.ts";

/** Return the hub_id, which the first key fixes for the life of the hub (B13). */
export function hubIdOf(firstKey: Bytes): Bytes {
  return Ht("veen/hub-id", firstKey);
}

export function keyIdOf(hubPk: Bytes): Bytes {
  return Ht("veen/key-id", hubPk);
}

/** Bytes of a signature as the last item of an array: its head, and itself. */
const SIGNATURE_ITEM = 66;

/** Return the digest over an encoded array of at most 23 items without its last item, the signature. */
export function unsignedDigest(wire: Bytes): Bytes {
  const head = Uint8Array.of((wire[0] as number) - 1);
  return Ht("veen/sig", head, wire.subarray(1, -SIGNATURE_ITEM));
}

/** Return the digest of the first six fields, which the hub and each witness sign (B7). */
export function checkpointDigest(checkpoint: Checkpoint): Bytes {
  return Ht("veen/sig", encode((writeObject("Checkpoint", checkpoint) as readonly Item[]).slice(0, 6)));
}

export function isActive(key: HubKey, now: bigint): boolean {
  return key.valid_from <= now && (key.valid_until === null || now < key.valid_until);
}

function inOrder(identity: HubIdentity): HubKey[] {
  return [...identity.hub_keys].sort((a, b) =>
    a.valid_from === b.valid_from ? compare(a.hub_pk, b.hub_pk) : a.valid_from < b.valid_from ? -1 : 1,
  );
}

/** Return the keys that are active at a time, ordered by `valid_from`, then by `hub_pk`. */
export function activeAt(identity: HubIdentity, now: bigint): HubKey[] {
  return inOrder(identity).filter((key) => isActive(key, now));
}

/** Verify that every key chains to `hub_id`, and that this is the `pinned` hub_id, if given (core §8.4). */
export async function verifyIdentity(identity: HubIdentity, pinned: Bytes | null = null): Promise<void> {
  if (pinned !== null && !equal(identity.hub_id, pinned)) {
    throw new IdentityError(
      `hub-identity (core §8.4): the record is for hub ${hex(identity.hub_id)}, but the pinned hub is ${hex(pinned)}`,
    );
  }
  const keys = identity.hub_keys;
  const first = keys[0];
  if (first === undefined) throw new IdentityError("hub-identity.hub_keys (core §8.4): empty");
  if (!equal(hubIdOf(first.hub_pk), identity.hub_id) || first.endorsement !== null) {
    throw new IdentityError("hub-identity (core §8.4): hub_id is not the hash of the first key (B13)");
  }
  if (new Set(keys.map((key) => hex(key.key_id))).size !== keys.length) {
    throw new IdentityError("hub-identity.hub_keys (core §8.4): a key is listed twice");
  }
  for (const key of keys) {
    if (!equal(key.key_id, keyIdOf(key.hub_pk))) {
      throw new IdentityError("hub_key.key_id (core §8.4): is not the id of hub_pk");
    }
    if (key.valid_until !== null && key.valid_until <= key.valid_from) {
      throw new IdentityError("hub_key.valid_until (core §8.4): is not after valid_from");
    }
  }
  for (const [at, key] of keys.slice(1).entries()) await checkLink(identity.hub_id, keys[at] as HubKey, key);
}

/** Verify hub-identity.sig, which the newest key makes over the whole record (core §8.4). */
export async function verifyIdentitySignature(identity: HubIdentity, signature: Bytes): Promise<void> {
  const newest = identity.hub_keys.at(-1);
  if (newest === undefined) throw new IdentityError("hub-identity.hub_keys (core §8.4): empty");
  const digest = Ht("veen/hub-identity", encodeObject("HubIdentity", identity));
  await verify(newest.hub_pk, digest, signature, "hub-identity.sig (core §8.4)");
}

async function checkLink(hubId: Bytes, before: HubKey, key: HubKey): Promise<void> {
  if (key.valid_from <= before.valid_from) {
    throw new IdentityError("hub-identity.hub_keys (core §8.4): the keys are not in the order of valid_from");
  }
  if (key.endorsement === null) throw new IdentityError("hub_key.endorsement (core §8.4): missing");
  const digest = Ht("veen/hub-key", hubId, key.hub_pk, u64be(key.valid_from));
  try {
    await verify(before.hub_pk, digest, key.endorsement, "hub_key.endorsement (core §8.4)");
  } catch (error) {
    throw error instanceof SignatureError ? new IdentityError(error.message) : error;
  }
}

/** Return whether a valid identity has the pinned hub_id or first hub_pk. */
export async function isPinned(identity: HubIdentity, pin: Bytes): Promise<boolean> {
  try {
    await verifyIdentity(identity);
  } catch (error) {
    if (error instanceof IdentityError) return false;
    throw error;
  }
  return equal(pin, identity.hub_id) || equal(pin, (identity.hub_keys[0] as HubKey).hub_pk);
}

/** Return hub_sig of a RECEIPT, to be verified under the keys that were active at its hub_ts (core §8.4). */
export function receiptClaim(
  identity: HubIdentity,
  receipt: Receipt,
  wire: Bytes = encodeObject("Receipt", receipt),
): Claim {
  return {
    keys: activeAt(identity, receipt.hub_ts).map((key) => key.hub_pk),
    message: unsignedDigest(wire),
    signature: receipt.hub_sig,
    refusal: () =>
      new SignatureError(
        `RECEIPT.hub_sig at stream_seq ${receipt.stream_seq}: no key of the hub that was active at hub_ts ` +
          `${receipt.hub_ts} verifies it (core §4.3, §8.4)`,
      ),
  };
}

/** Verify hub_sig under any key active at hub_ts; return the key that verified (core §8.4). */
export async function verifyReceipt(identity: HubIdentity, receipt: Receipt): Promise<Bytes> {
  const claim = receiptClaim(identity, receipt);
  for (const key of claim.keys) if (await isValid(key, claim.message, claim.signature)) return key;
  throw claim.refusal();
}

/** Verify hub_sig of a RECEIPT under one key. */
export async function verifyReceiptUnder(receipt: Receipt, hubPk: Bytes): Promise<void> {
  const what = `RECEIPT.hub_sig at stream_seq ${receipt.stream_seq} (core §4.3)`;
  await verify(hubPk, unsignedDigest(encodeObject("Receipt", receipt)), receipt.hub_sig, what);
}

/** Verify hub_sig under any key active in the epoch; without epochs, under any key of the hub (core §8.4). */
export async function verifyCheckpoint(
  identity: HubIdentity,
  made: Checkpoint,
  epochSec: bigint,
): Promise<HubKey> {
  const digest = checkpointDigest(made);
  const start = made.epoch * epochSec;
  const end = start + epochSec;
  for (const key of inOrder(identity)) {
    const counts =
      epochSec === 0n || (key.valid_from < end && (key.valid_until === null || key.valid_until > start));
    if (counts && (await isValid(key.hub_pk, digest, made.hub_sig))) return key;
  }
  throw new SignatureError(
    `CHECKPOINT.hub_sig at upto_seq ${made.upto_seq}: no key of the hub that was active in epoch ` +
      `${made.epoch} verifies it (core §4.4, §8.4)`,
  );
}

/** Verify every witness signature, each under another key, and that each required key signed (B7). */
export async function verifyWitnesses(
  made: Checkpoint,
  required: readonly Bytes[],
  known: readonly Bytes[],
): Promise<void> {
  const digest = checkpointDigest(made);
  const candidates = unique([...required, ...known]);
  let missing = unique(required);
  for (const [position, signature] of (made.witness_sigs ?? []).entries()) {
    let signer: Bytes | undefined;
    for (const key of candidates) {
      if (await isValid(key, digest, signature)) {
        signer = key;
        break;
      }
    }
    if (signer === undefined) {
      throw new SignatureError(
        `CHECKPOINT.witness_sigs[${position}] (core §4.4): verifies under no known witness key`,
      );
    }
    candidates.splice(candidates.indexOf(signer), 1); // a key signs once
    missing = missing.filter((key) => !equal(key, signer));
  }
  if (missing[0] !== undefined) {
    throw new SignatureError(
      `CHECKPOINT.witness_sigs (core §4.4): the signature of witness ${hex(missing[0])} is missing`,
    );
  }
}

function unique(keys: readonly Bytes[]): Bytes[] {
  return [...new Map(keys.map((key) => [hex(key), key])).values()];
}

/** Verify a checkpoint that was made between `since` and `now`, also in a rotation window (KEX0.1, ADR 0005). */
export async function verifyCheckpointSigners(
  identity: HubIdentity,
  made: Checkpoint,
  since: bigint,
  now: bigint,
): Promise<void> {
  const signer = await verifyCheckpoint(identity, made, 0n);
  const all = identity.hub_keys.map((key) => key.hub_pk);
  const changes = new Set(
    identity.hub_keys.flatMap((key) => [key.valid_from, key.valid_until ?? 0n]).filter((t) => t !== 0n),
  );
  const later = [...changes].filter((time) => since < time && time <= now).sort((a, b) => (a < b ? -1 : 1));
  let failure: SignatureError | undefined;
  for (const moment of [since, ...later]) {
    const active = activeAt(identity, moment);
    try {
      await verifyWitnesses(made, active.length > 1 ? active.map((key) => key.hub_pk) : [], all);
    } catch (error) {
      if (!(error instanceof SignatureError)) throw error;
      failure ??= error;
      continue;
    }
    if (active.includes(signer)) return;
  }
  throw (
    failure ??
    new SignatureError(
      "CHECKPOINT.hub_sig was made by a key that was not active at the time of the checkpoint (core §4.4)",
    )
  );
}
