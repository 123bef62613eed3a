/** The files of an export: their damage, CBOR sequences in them, and small files (ADR 0007). */

import { type Bytes } from "../wire/bytes.ts";
import { itemEnd } from "../wire/cbor.ts";
import { DecodeError, VeenError } from "../wire/errors.ts";

/** Bytes of the largest receipt, pruned payload's marker or checkpoint with its witnesses. */
export const MAX_SMALL_ITEM = 65_536;
const ASK_AGAIN = "ask for the export again";

/** The content of a file is wrong; damage is reported and never skipped. */
export class DamageError extends VeenError {}

export function damaged(name: string, what: string, offset?: number, action = ASK_AGAIN): DamageError {
  const at = offset === undefined ? "" : ` at byte ${offset}`;
  return new DamageError(`${name}${at}: ${what}`, action);
}

/** Do something with a file; turn its errors into damage of the file. */
export async function inFile<T>(name: string, work: () => T | Promise<T>, offset?: number): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof DamageError || !(error instanceof VeenError)) throw error;
    throw damaged(name, error.full, offset);
  }
}

/** The files of one export by name. */
export type Folder = ReadonlyMap<string, Bytes>;

/** Return the first bytes of a file; undefined if it is missing. */
export function readSmall(folder: Folder, name: string): Bytes | undefined {
  return folder.get(name)?.slice(0, MAX_SMALL_ITEM);
}

/** Yield offset and bytes of every item of a CBOR sequence. */
export function* readSequence(folder: Folder, name: string): Generator<readonly [number, Bytes]> {
  const data = folder.get(name) ?? new Uint8Array();
  for (let at = 0; at < data.length;) {
    let end: number;
    try {
      end = itemEnd(data, at);
    } catch (error) {
      throw error instanceof DecodeError ? damaged(name, `is not a CBOR item: ${error.found}`, at) : error;
    }
    yield [at, data.slice(at, end)];
    at = end;
  }
}
