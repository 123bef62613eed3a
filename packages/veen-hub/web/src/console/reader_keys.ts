/** Reader keys: given by the person, in this tab's memory only, never stored and never sent. */
import { publicKey } from "../verify/crypto/hpke.ts";
import { type Bytes, fromHex, hex } from "../verify/wire/bytes.ts";
import { decodeObject } from "../verify/wire/codec.ts";
import { VeenError } from "../verify/wire/errors.ts";
import { type Opened, openMsg } from "../verify/log/msg.ts";
import type { Msg } from "../verify/wire/schema.ts";
import type { AuditLog } from "./audit.ts";
import { Subject } from "./subject.ts";

export interface ReaderKey {
  readonly secret: Bytes;
  readonly publicHex: string;
}

export class ReaderKeys {
  readonly keys = new Subject<readonly ReaderKey[]>([]);
  readonly #audit: AuditLog;

  constructor(audit: AuditLog) {
    this.#audit = audit;
  }

  /** Add keys from a file of secrets, or from 64 hex digits; return how many were new. */
  add(content: Bytes): number {
    const before = this.keys.value;
    const known = new Set(before.map((key) => key.publicHex));
    const added = secretsOf(content)
      .map((secret) => ({ secret, publicHex: hex(publicKey(secret)) }))
      .filter((key) => !known.has(key.publicHex));
    this.keys.set([...before, ...added]);
    for (const key of added) this.#audit.add("key", `reader key ${key.publicHex} taken into memory`);
    return added.length;
  }

  forget(): void {
    for (const key of this.keys.value) key.secret.fill(0);
    this.#audit.add("key", `${this.keys.value.length} reader keys forgotten`);
    this.keys.set([]);
  }

  /** Open a message with the first key that fits; undefined if none does. */
  async open(msg: Msg): Promise<Opened | undefined> {
    for (const { secret } of this.keys.value) {
      try {
        return await openMsg(msg, secret);
      } catch (error) {
        if (!(error instanceof VeenError)) throw error;
      }
    }
    return undefined;
  }
}

function secretsOf(content: Bytes): Bytes[] {
  const text = content.length < 200 ? new TextDecoder().decode(content).trim() : "";
  const plain = text.length === 64 ? fromHex(text) : undefined;
  if (plain !== undefined) return [plain];
  const secrets = decodeObject("Secrets", content);
  return [secrets.id_dh, ...secrets.prekeys.map((prekey) => prekey.secret)];
}
