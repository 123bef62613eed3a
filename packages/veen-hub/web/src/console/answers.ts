/** The hub's answers, decoded strictly; nothing is verified here. */
import type { Bytes } from "../verify/wire/bytes.ts";
import { decodeObject } from "../verify/wire/codec.ts";
import { VeenError } from "../verify/wire/errors.ts";

export interface ErrorAnswer {
  readonly code: string;
  readonly message: string;
  readonly streamSeq: number | undefined;
}

/** Read an error envelope (core §10.6); undefined if the bytes are none. */
export function readError(body: Bytes): ErrorAnswer | undefined {
  try {
    const { code, message, detail } = decodeObject("ErrorEnvelope", body);
    const seq = detail?.stream_seq ?? null;
    return { code, message, streamSeq: seq === null ? undefined : Number(seq) };
  } catch (error) {
    if (error instanceof VeenError) return undefined;
    throw error;
  }
}
