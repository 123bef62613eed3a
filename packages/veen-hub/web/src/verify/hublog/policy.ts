/** The witness policy: which logs count, and how many witnesses must have cosigned (C2SP tlog-policy). */

import { fromUtf8, hex } from "../wire/bytes.ts";
import { DecodeError, plural, QuorumError, SignatureError } from "../wire/errors.ts";
import {
  COSIGNATURE,
  cosignedAt,
  ED25519,
  type NoteKey,
  parseKey,
  quote,
  type SignedHead,
  verifiedSignatures,
} from "./note.ts";

const NONE = "none";
const MAX_POLICY_BYTES = 1_048_576;
const DEFAULT_MAX_AGE_SEC = 300;
const MAX_NUMBER = 999_999_999;
const MAX_SHOWN_NAMES = 8;
export const POLICY_ACTION =
  "a policy has lines log, witness, group, quorum and #veen max-age; see docs/concepts/hub-log.md";
const WRONG_KEY: Readonly<Record<number, string>> = {
  [COSIGNATURE]: "this is the key of a log; a witness line needs the key that `veen witness status` prints",
  [ED25519]: "this is the key of a witness; a log line needs the key that `veen hub keys --note` prints",
};

export interface Witness {
  readonly name: string;
  readonly key: NoteKey;
}

interface Group {
  readonly name: string;
  readonly threshold: number;
  readonly members: readonly string[];
}

/** Which witnesses cosigned and when, and since when a quorum of them has. */
export interface Cosigned {
  readonly witnesses: readonly (readonly [Witness, bigint])[];
  readonly quorumAt: bigint | null;
}

export class WitnessPolicy {
  readonly quorum: string;
  readonly logs: readonly NoteKey[];
  readonly witnesses: readonly Witness[];
  readonly groups: readonly Group[];
  readonly maxAgeSec: number;

  constructor(parser: Parser) {
    this.quorum = parser.quorum as string;
    this.logs = parser.logs;
    this.witnesses = parser.witnesses;
    this.groups = parser.groups;
    this.maxAgeSec = parser.maxAgeSec ?? DEFAULT_MAX_AGE_SEC;
  }

  #isQuorum(cosigned: readonly string[]): boolean {
    const done = new Set(cosigned);
    for (const group of this.groups) {
      if (group.members.filter((member) => done.has(member)).length >= group.threshold) done.add(group.name);
    }
    return done.has(this.quorum);
  }

  /** Verify a checkpoint: signed by a log of the policy and by a quorum; `logKeys` are known from elsewhere. */
  async check(signed: SignedHead, logKeys: readonly NoteKey[]): Promise<Cosigned> {
    if ((await verifiedSignatures(signed.note, this.#keysOf(signed.origin, logKeys))).size === 0) {
      throw new SignatureError(
        `the checkpoint of ${signed.origin} has no signature of a log that the policy names (C2SP tlog-policy)`,
      );
    }
    const made = await verifiedSignatures(
      signed.note,
      this.witnesses.map((witness) => witness.key),
    );
    const witnesses = this.witnesses.flatMap((witness) => {
      const signature = made.get(witness.key);
      return signature === undefined ? [] : [[witness, cosignedAt(signature)] as const];
    });
    return { witnesses, quorumAt: this.#quorumAt(signed, witnesses) };
  }

  #keysOf(origin: string, logKeys: readonly NoteKey[]): readonly NoteKey[] {
    const named = this.logs.filter((key) => key.name === origin);
    const known = logKeys.filter((key) => key.name === origin);
    const text = ({ kind, public: bytes }: NoteKey): string => `${kind} ${hex(bytes)}`;
    const both = named.some((key) => known.some((other) => text(other) === text(key)));
    if (this.logs.length > 0 && !(logKeys.length > 0 ? both : named.length > 0)) {
      throw new SignatureError(`the policy does not name the log ${origin} (C2SP tlog-policy)`);
    }
    return known.length > 0 ? known : named;
  }

  #quorumAt(signed: SignedHead, times: readonly (readonly [Witness, bigint])[]): bigint | null {
    if (this.quorum === NONE) return null;
    const names: string[] = [];
    for (const [witness, time] of [...times].sort(([, a], [, b]) => (a === b ? 0 : a < b ? 1 : -1))) {
      names.push(witness.name);
      if (this.#isQuorum(names)) return time;
    }
    throw new QuorumError(
      `the checkpoint of ${signed.origin} at size ${signed.size} has the cosignatures of ` +
        `${times.length} of ${this.witnesses.length} witnesses, which is no quorum (C2SP tlog-policy)`,
    );
  }
}

class Parser {
  readonly logs: NoteKey[] = [];
  readonly witnesses: Witness[] = [];
  readonly groups: Group[] = [];
  quorum: string | undefined;
  maxAgeSec: number | undefined;
  readonly #names: string[] = [];
  readonly #members = new Set<string>();
  readonly #publics = new Set<string>();

  line(text: string): void {
    const words = text.split(/[ \t]+/);
    const [word, first, second, ...rest] = words;
    if (text === "" || (text.startsWith("#") && word !== "#veen")) return;
    if (word === "log" && (words.length === 2 || words.length === 3)) {
      this.logs.push(this.#key(first as string, ED25519));
    } else if (word === "witness" && (words.length === 3 || words.length === 4)) {
      this.#define(first as string);
      this.witnesses.push({ name: first as string, key: this.#key(second as string, COSIGNATURE) });
    } else if (word === "group" && words.length >= 3) {
      this.#group(first as string, second as string, rest);
    } else if (word === "quorum" && words.length === 2) {
      this.#setQuorum(first as string);
    } else if (word === "#veen" && first === "max-age" && words.length === 3) {
      this.#setMaxAge(second as string);
    } else {
      throw new DecodeError(`${shown(text)} is not a line of a policy`);
    }
  }

  #group(name: string, threshold: string, members: readonly string[]): void {
    if (members.length === 0) throw new DecodeError("has a group without members");
    for (const member of members) {
      if (!this.#names.includes(member)) throw this.#undefined(member);
      if (this.#members.has(member)) throw new DecodeError(`lists ${shown(member)} as a member twice`);
      this.#members.add(member);
    }
    this.#define(name);
    const isNumber = /^[1-9][0-9]{0,8}$/.test(threshold);
    if (threshold !== "any" && threshold !== "all" && !isNumber) {
      throw new DecodeError(`${shown(threshold)} is not any, all or an integer from 1 to ${MAX_NUMBER}`);
    }
    const count = threshold === "any" ? 1 : threshold === "all" ? members.length : Number(threshold);
    if (count > members.length) throw new DecodeError(`wants ${count} of ${members.length} members`);
    this.groups.push({ name, threshold: count, members });
  }

  #setQuorum(name: string): void {
    if (this.quorum !== undefined) throw new DecodeError("has two quorum lines");
    if (name !== NONE && !this.#names.includes(name)) throw this.#undefined(name);
    this.quorum = name;
  }

  #setMaxAge(seconds: string): void {
    if (this.maxAgeSec !== undefined) throw new DecodeError("has two max-age lines");
    if (!/^[1-9][0-9]{0,8}$/.test(seconds)) {
      throw new DecodeError(`${shown(seconds)} is not an integer from 1 to ${MAX_NUMBER} (seconds)`);
    }
    this.maxAgeSec = Number(seconds);
  }

  #key(text: string, kind: number): NoteKey {
    const key = parseKey(text);
    if (key.kind !== kind) throw new DecodeError(WRONG_KEY[kind] as string);
    const name = `${kind} ${hex(key.public)}`;
    if (this.#publics.has(name)) {
      throw new DecodeError(`names the same ${kind === ED25519 ? "log" : "witness"} key twice`);
    }
    this.#publics.add(name);
    return key;
  }

  #define(name: string): void {
    if (name === NONE) {
      throw new DecodeError(`defines ${shown(name)}, which is reserved for the quorum that needs no witness`);
    }
    if (this.#names.includes(name)) throw new DecodeError(`defines ${shown(name)} twice`);
    this.#names.push(name);
  }

  #undefined(name: string): DecodeError {
    const names =
      this.#names
        .slice(0, MAX_SHOWN_NAMES)
        .map((each) => each.slice(0, 60))
        .join(", ") || "nothing";
    const more = this.#names.length > MAX_SHOWN_NAMES ? ", …" : "";
    return new DecodeError(`names ${shown(name)} before it is defined; defined so far: ${names}${more}`);
  }
}

const shown = (text: string): string => quote(text.slice(0, 60));

const place = (line?: number): string =>
  line === undefined ? "policy (C2SP tlog-policy)" : `policy (C2SP tlog-policy), line ${line}`;

/** Parse a policy; the error names the line. */
export function parsePolicy(data: Uint8Array): WitnessPolicy {
  if (data.length > MAX_POLICY_BYTES)
    throw new DecodeError(`has more than ${MAX_POLICY_BYTES} bytes`, place());
  if (data.some((byte) => (byte < 0x20 && byte !== 9 && byte !== 10) || byte === 0x7f)) {
    throw new DecodeError("contains a control character other than tab and newline", place());
  }
  const text = fromUtf8(data);
  if (text === undefined) throw new DecodeError("is not UTF-8", place());
  const parser = new Parser();
  for (const [at, line] of text.split("\n").entries()) {
    try {
      parser.line(line.replace(/^[ \t]+|[ \t]+$/g, ""));
    } catch (error) {
      throw error instanceof DecodeError ? error.within(place(at + 1)) : error;
    }
  }
  if (parser.quorum === undefined) throw new DecodeError("has no quorum line", place());
  return new WitnessPolicy(parser);
}

/** Say who cosigned a hub checkpoint, and since when the policy's quorum is reached. */
export function cosignedStep(
  cosigned: Cosigned,
  policy: WitnessPolicy,
  formatTime: (time: bigint) => string,
): string {
  const names = cosigned.witnesses.map(([witness]) => witness.name).join(", ") || "none";
  if (cosigned.quorumAt === null) return `the policy needs no cosignature; witnesses that cosigned: ${names}`;
  const of = plural(policy.witnesses.length, "witness", "witnesses");
  return `${cosigned.witnesses.length} of ${of} cosigned it (${names}), a quorum since ${formatTime(cosigned.quorumAt)}`;
}
