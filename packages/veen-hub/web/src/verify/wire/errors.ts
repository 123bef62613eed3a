/** The errors of verification. The message says what failed, where and by which clause; as in veen-core. */

import type { Fault } from "./schema.ts";

export class VeenError extends Error {
  /** The next step for the user, if there is one. */
  readonly action: string | null;

  constructor(message: string, action: string | null = null) {
    super(message);
    this.action = action;
  }

  /** Message and action, as `veen verify` prints them. */
  get full(): string {
    return this.action === null ? this.message : `${this.message}; ${this.action}`;
  }
}

export const FAULT = { CBOR: 0, SIZE: 1, VERSION: 2 } as const satisfies Record<string, Fault>;

/** The bytes are not the object that they claim to be (core §3.1). */
export class DecodeError extends VeenError {
  readonly found: string;
  readonly fault: Fault;
  readonly where: string;

  constructor(found: string, where = "", fault: Fault = FAULT.CBOR) {
    super(where === "" ? found : `${where}: ${found}`);
    this.found = found;
    this.fault = fault;
    this.where = where;
  }

  /** The same error with the name of the object that contains the field. */
  within(where: string): DecodeError {
    return new DecodeError(this.found, this.where === "" ? where : `${where}: ${this.where}`, this.fault);
  }
}

/** A well-formed object does not verify. */
export class VerificationError extends VeenError {}
/** An Ed25519 signature does not verify. */
export class SignatureError extends VerificationError {}
/** An inclusion or consistency proof is wrong (core §5.4, B11). */
export class ProofError extends VerificationError {}
/** A CHECKPOINT breaks a rule of core §4.4.1. */
export class CheckpointError extends VerificationError {}
/** A cap token breaks a rule of core §6. */
export class CapError extends VerificationError {}
/** A hub identity does not chain to its anchor (core §8.4). */
export class IdentityError extends VerificationError {}
/** A file of evidence does not prove what it claims (spec-1 §14). */
export class EvidenceError extends VerificationError {}
/** Too few witnesses cosigned a hub checkpoint (P2). */
export class QuorumError extends VerificationError {}
/** A ciphertext does not open with this key (core §4.2). */
export class OpenError extends VeenError {}

/** An entry breaks a rule of the log; `invariant` is the rule's name. */
export class InvariantError extends VerificationError {
  readonly invariant: string;

  constructor(invariant: string, message: string) {
    super(`${invariant}: ${message}`);
    this.invariant = invariant;
  }
}

/** Return the error if it is one of verification; any other error is a bug, and is thrown on. */
export function expected(error: unknown): VeenError {
  if (error instanceof VeenError) return error;
  throw error;
}

/** Return a count with its noun: "1 checkpoint", "2 checkpoints". */
export function plural(count: number | bigint, noun: string, many = `${noun}s`): string {
  return Number(count) === 1 ? `${count} ${noun}` : `${count} ${many}`;
}

const CLAUSES = [
  /\bcore §\d+(?:\.\d+)*(?:, (?:core )?§\d+(?:\.\d+)*)*/,
  /\bRESOLUTIONS [A-Z]\d+(?:, [A-Z]\d+)*/,
  /\b(?:C2SP [a-z-]+|RFC \d+ §[\d.]+|spec-\d §?[\d.]+|query-api §[\d.]+|ADR \d{4}|[A-Z]+\d?\+? ?\d\.\d)/,
  /\((?:[A-Z]\d+)(?:, [A-Z]\d+)*\)|§\d+(?:\.\d+)*/,
];

/** Return the clause that a message cites; null if it cites none. */
export function clauseOf(message: string): string | null {
  for (const pattern of CLAUSES) {
    const found = pattern.exec(message);
    if (found !== null) return found[0].replace(/^\(|\)$/g, "");
  }
  return null;
}
