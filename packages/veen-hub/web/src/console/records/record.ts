/** Records: message bodies decoded by the schema that `payload_hdr` names (core §4.7, RESOLUTIONS B2, B14). */
import { type Bytes, hex } from "../../verify/wire/bytes.ts";
import { decode } from "../../verify/wire/cbor.ts";
import { declare, type Fields, readFields } from "../../verify/wire/codec.ts";
import { DecodeError } from "../../verify/wire/errors.ts";
import { PARTS, type RecordName, RECORDS, type Records, type RecordSchema } from "./schema.ts";

declare(PARTS);

const BY_ID = new Map<string, RecordSchema[]>();
for (const schema of RECORDS) BY_ID.set(schema.id, [...(BY_ID.get(schema.id) ?? []), schema]);

/** A decoded record. Its types and its form are checked; the further rules of its overlay are not. */
export interface DecodedRecord {
  readonly schema: RecordSchema;
  readonly fields: Fields;
}

/** Decode a body; return a text if it is no record: it says why, or is empty for a schema that is not known here. */
export function decodeRecord(schemaId: Bytes, body: Bytes): DecodedRecord | string {
  let why = "";
  for (const schema of BY_ID.get(hex(schemaId)) ?? []) {
    try {
      return { schema, fields: readFields(schema, decode(body)) };
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      why = error.message;
    }
  }
  return why;
}

/** Return the fields of a record of this name; undefined for any other. */
export function fieldsOf<N extends RecordName>(record: DecodedRecord | undefined, name: N): Records[N] | undefined {
  return record?.schema.name === name ? (record.fields as unknown as Records[N]) : undefined;
}
