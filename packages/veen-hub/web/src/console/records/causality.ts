/** Causality: the operations of a stream, each below the operation that led to it (spec-3 1.1). */
import { H, Ht } from "../../verify/crypto/hash.ts";
import { type Bytes, concat, hex } from "../../verify/wire/bytes.ts";
import type { RecordEntry } from "./stream_log.ts";

/** Schema ids of the operations of spec-3 begin with this before they are hashed (RESOLUTIONS B14). */
const OPERATION_PREFIX = "veen/schema:";

export interface OperationNode {
  readonly entry: RecordEntry;
  readonly name: string;
  readonly operationId: string;
  readonly children: OperationNode[];
  /** Operations that it names and that this stream does not have. */
  readonly missingParents: readonly string[];
}

/** Return the id of an operation: of the message that carries it (spec-3 1.1). */
export function operationId(msgId: Bytes): string {
  return hex(Ht("veen/operation-id", msgId));
}

/** Return the operations that follow from no other operation of the stream; the others are below them. */
export function causalTree(entries: readonly RecordEntry[]): OperationNode[] {
  const nodes = new Map<string, OperationNode>();
  const copies = new Map<string, string>();
  const payloads = new Map<string, string>();
  const roots: OperationNode[] = [];
  for (const entry of entries) {
    const { record, opened, row } = entry;
    if (record === undefined || opened === undefined || row.receipt === undefined || !isOperation(record.schema)) continue;
    const own = operationId(row.receipt.leaf_hash);
    const named = opened.header.parent_id;
    const payload = hex(H(concat(opened.header.schema, opened.body)));
    payloads.set(hex(row.receipt.leaf_hash), payload);
    if (named !== null && payloads.get(hex(named)) === payload) { // a copy is the same operation (ID 12.1)
      copies.set(own, operationId(named));
      continue;
    }
    const known = (id: string): OperationNode | undefined => nodes.get(id) ?? nodes.get(copies.get(id) ?? "");
    const parents = parentsOf(record.fields);
    const fromHeader = named === null ? undefined : known(operationId(named));
    if (named !== null && fromHeader === undefined) copies.set(operationId(named), own);
    const parent = parents.map(known).find((each) => each !== undefined) ?? fromHeader;
    const node: OperationNode = {
      entry, name: record.schema.name, operationId: own, children: [],
      missingParents: parents.filter((each) => known(each) === undefined),
    };
    nodes.set(own, node);
    (parent?.children ?? roots).push(node);
  }
  return roots;
}

function isOperation({ id, name }: { readonly id: string; readonly name: string }): boolean {
  return id === hex(H(new TextEncoder().encode(OPERATION_PREFIX + name)));
}

/** The operations that a record names: its parent, and the approvals of a recovery. */
function parentsOf(fields: Readonly<Record<string, unknown>>): string[] {
  const parent = fields["parent_operation_id"];
  const approvals = fields["approval_references"];
  return [...(parent instanceof Uint8Array ? [parent] : []), ...(Array.isArray(approvals) ? approvals : [])]
    .map((each) => hex(each as Bytes));
}
