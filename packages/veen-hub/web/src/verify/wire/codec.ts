/** Wire objects to and from CBOR, by the tables of `schema.ts` (core §3.1, B1, B2); reading is strict. */

import type { Bytes } from "./bytes.ts";
import { CborMap, decode, encode, type Item, type Key, U64_MAX } from "./cbor.ts";
import { limitsFault } from "../log/limits.ts";
import { DecodeError, FAULT, VeenError } from "./errors.ts";
import {
  type FieldSchema,
  KINDS,
  type Kind,
  type ObjectName,
  type Objects,
  type ObjectSchema,
  SCHEMA,
} from "./schema.ts";

/** An object as fields by name; an absent optional field is null. */
export type Fields = Record<string, unknown>;

const MAX_PAD_BLOCK = 1_048_576n;
/** No object of a file is larger, in bytes. */
const MAX_OBJECT_BYTES = 64 * 1_048_576;

/** Describe an item for an error, without repeating its content. */
export function found(item: Item): string {
  if (item === null) return "null";
  if (typeof item === "boolean") return "bool";
  if (typeof item === "bigint")
    return item <= U64_MAX && item >= -U64_MAX ? `int ${item}` : "int beyond 64 bits";
  if (item instanceof Uint8Array) return `bstr of ${item.length} bytes`;
  if (typeof item === "string") return `tstr of ${[...item].length} characters`;
  return item instanceof CborMap ? `map of ${item.entries.length}` : `array of ${item.length}`;
}

/** Return a name with its clause; a bare number is a section of core. */
export function where(name: string, section: string): string {
  return /^\d/.test(section) ? `${name} (core §${section})` : `${name} (${section})`;
}

const place = (schema: ObjectSchema, field = ""): string =>
  where(field === "" ? schema.name : `${schema.name}.${field}`, schema.section);

const fail = (schema: ObjectSchema, message: string, field = ""): DecodeError =>
  new DecodeError(message, place(schema, field));

function readKind(kind: Kind, item: Item): unknown {
  switch (kind) {
    case "uint":
      if (typeof item === "bigint" && item >= 0n) return item;
      throw new DecodeError(`want uint, found ${found(item)}`);
    case "int":
      if (typeof item === "bigint") return item;
      throw new DecodeError(`want int, found ${found(item)}`);
    case "text":
      if (typeof item === "string") return item;
      throw new DecodeError(`want tstr, found ${found(item)}`);
    case "bool":
      if (typeof item === "boolean") return item;
      throw new DecodeError(`want bool, found ${found(item)}`);
    case "bytes":
      if (item instanceof Uint8Array) return item;
      throw new DecodeError(`want bstr, found ${found(item)}`);
    case "any":
      return item;
  }
  switch (kind[0]) {
    case "fixed":
      if (!(item instanceof Uint8Array)) throw new DecodeError(`want bstr${kind[2]}, found ${found(item)}`);
      if (item.length === kind[2]) return item;
      throw new DecodeError(`want ${kind[1]} of ${kind[2]} bytes, found ${item.length}`, "", FAULT.SIZE);
    case "one": {
      if (kind[1].some((allowed) => allowed === item)) return item;
      const words = kind[1]
        .map((allowed) => (typeof allowed === "string" ? `'${allowed}'` : `${allowed}`))
        .join(" | ");
      throw new DecodeError(
        `want ${words}, found ${found(item)}`,
        "",
        typeof item === "bigint" ? kind[2] : FAULT.CBOR,
      );
    }
    case "word":
      if (typeof item === "string" && kind[2].includes(item)) return item;
      throw new DecodeError(`want one of ${kind[1]}, found ${found(item)}`);
    case "list":
      return readList(kind[1], kind[2], item);
    case "null":
      return item === null ? null : readKind(kind[1], item);
    case "object":
      return readFields(schemaOf(kind[1]), item);
  }
}

/** Declarations besides those of `schema.ts`, by the name that fields give them. */
const FURTHER = new Map<string, ObjectSchema>();

/** Make further declarations known, such as those of records. */
export function declare(schemas: Readonly<Record<string, ObjectSchema>>): void {
  for (const [name, schema] of Object.entries(schemas)) FURTHER.set(name, schema);
}

function schemaOf(name: string): ObjectSchema {
  return SCHEMA[name as ObjectName] ?? (FURTHER.get(name) as ObjectSchema);
}

function readList(kind: Kind, least: number, item: Item): unknown[] {
  if (!Array.isArray(item)) throw new DecodeError(`want array, found ${found(item)}`);
  if (item.length < least) throw new DecodeError(`want array of at least ${least}, found ${found(item)}`);
  return item.map((each: Item, at) => {
    try {
      return readKind(kind, each);
    } catch (error) {
      throw error instanceof DecodeError ? error.within(`[${at}]`) : error;
    }
  });
}

/** Read an object from a decoded item. */
export function readObject<N extends ObjectName>(name: N, item: Item): Objects[N] {
  return readFields(SCHEMA[name], item) as unknown as Objects[N];
}

/** Read the fields of a declared object from a decoded item. */
export function readFields(schema: ObjectSchema, item: Item): Fields {
  const present = schema.layout === "array" ? arrayFields(schema, item) : mapFields(schema, item);
  const made: Fields = Object.fromEntries(schema.fields.map(([field]) => [field, null]));
  try {
    for (const [[field, , kind], value] of present) made[field] = readKind(kind, value);
  } catch (error) {
    if (!(error instanceof DecodeError)) throw error;
    throw firstError(schema, present);
  }
  checkMade(schema, made);
  return made;
}

/** Return the error to report if several fields are wrong: the lowest fault, then the first field. */
function firstError(schema: ObjectSchema, present: readonly (readonly [FieldSchema, Item])[]): DecodeError {
  let first: DecodeError | undefined;
  for (const [[field, , kind], value] of present) {
    try {
      readKind(kind, value);
    } catch (error) {
      if (!(error instanceof DecodeError)) throw error;
      if (first === undefined || error.fault < first.fault) first = error.within(place(schema, field));
    }
  }
  if (first === undefined) throw new Error("a field that failed once was read");
  return first;
}

/** The rules of an object's own declaration that no field shows (core §14, §14.1). */
function checkMade(schema: ObjectSchema, made: Fields): void {
  if (schema === SCHEMA.Profile && (made["pad_block"] as bigint) > MAX_PAD_BLOCK) {
    const size = `pad_block ${made["pad_block"]} exceeds ${MAX_PAD_BLOCK}`;
    throw fail(schema, `${size}, the size of the largest MSG (core §14)`);
  }
  const fault = schema === SCHEMA.Limits ? limitsFault(made as unknown as Objects["Limits"]) : undefined;
  if (fault !== undefined) throw fail(schema, fault);
}

function arrayFields(schema: ObjectSchema, item: Item): (readonly [FieldSchema, Item])[] {
  if (!Array.isArray(item)) throw fail(schema, `want array, found ${found(item)}`);
  const least = schema.fields.filter(([, , , , trailing]) => !trailing).length;
  if (item.length !== schema.fields.length && item.length !== least) {
    throw fail(schema, `want array of ${schema.fields.length}, found array of ${item.length}`);
  }
  return item.map((value: Item, at) => [schema.fields[at] as FieldSchema, value]);
}

function mapFields(schema: ObjectSchema, item: Item): (readonly [FieldSchema, Item])[] {
  if (!(item instanceof CborMap)) throw fail(schema, `want map, found ${found(item)}`);
  const present: (readonly [FieldSchema, Item])[] = [];
  for (const field of schema.fields) {
    const [name, key, kind, optional] = field;
    const next = item.entries[present.length];
    if (next !== undefined && next[0] === key) {
      if (next[1] === null && optional && kind === "any") {
        throw fail(schema, "null, but an absent optional is omitted (B2)", name);
      }
      present.push([field, next[1]]);
    } else if (!optional) {
      throw fail(schema, item.get(key) === undefined ? "missing" : "keys out of order", name);
    }
  }
  if (present.length !== item.entries.length) throw fail(schema, stray(schema, item, present));
  return present;
}

function stray(
  schema: ObjectSchema,
  item: CborMap,
  present: readonly (readonly [FieldSchema, Item])[],
): string {
  const taken = new Set<Key>(present.map(([[, key]]) => key));
  const [key] = item.entries.find(([held]) => !taken.has(held)) as readonly [Key, Item];
  return schema.fields.some(([, declared]) => declared === key)
    ? "keys out of order"
    : `unknown key (${found(key)})`;
}

/** Decode canonical bytes; the error names object, field, clause and what was found. */
export function decodeObject<N extends ObjectName>(name: N, data: Uint8Array): Objects[N] {
  let item: Item;
  try {
    item = decode(data);
  } catch (error) {
    const { name: shown, section } = SCHEMA[name];
    throw error instanceof DecodeError ? error.within(where(shown, section)) : error;
  }
  return readObject(name, item);
}

function writeKind(kind: Kind, value: unknown): Item {
  if (typeof kind === "string") return value as Item;
  switch (kind[0]) {
    case "list":
      return (value as unknown[]).map((each) => writeKind(kind[1], each));
    case "null":
      return value === null ? null : writeKind(kind[1], value);
    case "object":
      return writeObject(kind[1] as ObjectName, value as never);
    default:
      return value as Item;
  }
}

/** Return the CBOR item of an object. */
export function writeObject<N extends ObjectName>(name: N, value: Objects[N]): Item {
  const { layout, fields } = SCHEMA[name];
  const held = value as unknown as Fields;
  if (layout === "array") {
    return fields
      .filter(([field, , , , trailing]) => !(trailing && held[field] === null))
      .map(([field, , kind]) => writeKind(kind, held[field]));
  }
  return new CborMap(
    fields
      .filter(([field, , , optional]) => !(optional && held[field] === null))
      .map(([field, key, kind]) => [key, writeKind(kind, held[field])]),
  );
}

/** Return the canonical bytes of an object. */
export function encodeObject<N extends ObjectName>(name: N, value: Objects[N]): Bytes {
  return encode(writeObject(name, value));
}

/** Any wire object with the name of its kind. */
export type Thing = { [N in ObjectName]: { readonly kind: N; readonly value: Objects[N] } }[ObjectName];

const BY_HEAD = new Map<number, ObjectName[]>();
for (const name of KINDS) {
  const { layout, fields } = SCHEMA[name];
  const least = fields.filter(([, , , optional, trailing]) => !optional && !trailing).length;
  for (let count = least; count <= fields.length; count += 1) {
    const first = (layout === "array" ? 0x80 : 0xa0) + count;
    BY_HEAD.set(first, [...(BY_HEAD.get(first) ?? []), name]);
  }
}

/** Return the object that these bytes encode; undefined if they encode none that a file may hold. */
export function decodeAny(data: Uint8Array): Thing | undefined {
  const kinds = BY_HEAD.get(data[0] ?? 0);
  if (kinds === undefined || data.length > MAX_OBJECT_BYTES) return undefined;
  try {
    const item = decode(data);
    for (const kind of kinds) {
      try {
        return { kind, value: readObject(kind, item) } as Thing;
      } catch (error) {
        if (!(error instanceof VeenError)) throw error;
      }
    }
  } catch (error) {
    if (!(error instanceof VeenError)) throw error;
  }
  return undefined;
}
