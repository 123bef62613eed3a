/**
 * In a browser: verify 1,000 signatures of messages by the page's library, and the same ones by bare WebCrypto.
 *
 * `claims`: from the bytes of each message to the verdict on its signature, as a log is verified: its digest, the
 * checks of its key, the signature. `whole`: decoding, layout and ct_hash too. Sets the page's title to JSON: the
 * median time of each in milliseconds, and the median ratio of `claims` to `bare` in one round after the other.
 */

import { invalidSignatures } from "../src/verify/crypto/signatures.ts";
import { Ht } from "../src/verify/crypto/hash.ts";
import { msgClaim, verifyMsg } from "../src/verify/log/msg.ts";
import { unsignedDigest } from "../src/verify/log/identity.ts";
import { H } from "../src/verify/crypto/hash.ts";
import type { Bytes } from "../src/verify/wire/bytes.ts";
import { encodeObject } from "../src/verify/wire/codec.ts";
import type { Msg } from "../src/verify/wire/schema.ts";

const COUNT = 1_000;
const WRITERS = 10;
const ROUNDS = 25;

interface Signed {
  readonly msg: Msg;
  readonly wire: Bytes;
  readonly digest: Bytes;
  readonly key: CryptoKey;
}

/** Make messages that are as large as usual ones, by a few writers. */
async function make(): Promise<Signed[]> {
  const pairs: { pair: CryptoKeyPair; id: Bytes }[] = [];
  for (let n = 0; n < WRITERS; n += 1) {
    const pair = (await crypto.subtle.generateKey("Ed25519", true, ["sign", "verify"])) as CryptoKeyPair;
    pairs.push({ pair, id: new Uint8Array(await crypto.subtle.exportKey("raw", pair.publicKey)) });
  }
  const made: Signed[] = [];
  for (let n = 0; n < COUNT; n += 1) {
    const { pair, id } = pairs[n % WRITERS] as (typeof pairs)[number];
    const ciphertext = crypto.getRandomValues(new Uint8Array(512));
    ciphertext.fill(0, 32, 40);
    ciphertext.fill(0, 40);
    const unsigned: Msg = {
      ver: 1n,
      profile_id: Ht("test", id),
      label: Ht("label", id),
      client_id: id,
      client_seq: BigInt(n + 1),
      prev_ack: 0n,
      auth_ref: null,
      ct_hash: H(ciphertext),
      ciphertext,
      sig: new Uint8Array(64),
    };
    const digest = unsignedDigest(encodeObject("Msg", unsigned));
    const msg = {
      ...unsigned,
      sig: new Uint8Array(await crypto.subtle.sign("Ed25519", pair.privateKey, digest)),
    };
    made.push({ msg, wire: encodeObject("Msg", msg), digest, key: pair.publicKey });
  }
  return made;
}

async function timed(work: () => Promise<boolean>): Promise<number> {
  const start = performance.now();
  if (!(await work())) throw new Error("a signature did not verify");
  return performance.now() - start;
}

async function measure(): Promise<Record<string, number>> {
  const signed = await make();
  const bare = async (): Promise<boolean> => {
    const answers = await Promise.all(
      signed.map(({ key, msg, digest }) => crypto.subtle.verify("Ed25519", key, msg.sig, digest)),
    );
    return answers.every(Boolean);
  };
  const claims = async (): Promise<boolean> =>
    (await invalidSignatures(signed.map(({ msg, wire }) => msgClaim(msg, wire)))).length === 0;
  const whole = async (): Promise<boolean> => {
    await Promise.all(signed.map(({ wire }) => verifyMsg(wire)));
    return true;
  };
  const rounds: number[][] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    rounds.push([await timed(bare), await timed(claims), await timed(whole)]);
  }
  const median = (values: readonly number[]): number => [...values].sort((x, y) => x - y)[Math.floor(ROUNDS / 2)] as number;
  const time = (at: number): number => median(rounds.map((times) => times[at] as number));
  const ratio = median(rounds.map(([one, other]) => (other as number) / (one as number)));
  return { bare: time(0), claims: time(1), whole: time(2), ratio };
}

measure().then(
  (times) => (document.title = JSON.stringify(times)),
  (error: unknown) => (document.title = JSON.stringify({ error: String(error) })),
);
