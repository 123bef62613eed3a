/**
 * The way from a message to the signatures, one hash after the other, for a reader to follow and to recompute.
 *
 * Every node has the bytes that its hash is made of, by name. Nothing here decides: the verdict is `verifier.ts`'s.
 */

import type { SignedHead } from "../hublog/note.ts";
import { COSIGNATURE, cosignedAt, keyIdOf, type NoteKey, parseSignedHead } from "../hublog/note.ts";
import type { WitnessPolicy } from "../hublog/policy.ts";
import { inclusionSteps } from "../hublog/tree.ts";
import { headLeaf, noteKeys } from "../hublog/checkpoint.ts";
import { activeAt, unsignedDigest } from "../log/identity.ts";
import { nodeHash, rootOf } from "../log/mmr.ts";
import { ownPeak } from "../log/proof.ts";
import { type Bytes, equal, u64be, utf8 } from "../wire/bytes.ts";
import { encodeObject } from "../wire/codec.ts";
import type { HubEvidence, HubIdentity, LabelHead, MmrProof, Msg, Receipt } from "../wire/schema.ts";
import type { Lead, Range } from "./verdict.ts";

/** One named piece of the bytes that a hash is made of. */
export interface Piece {
  readonly name: string;
  readonly bytes: Bytes;
}

/** One hash; `pieces` is null if the file does not have what it is made of. */
export interface PathNode {
  readonly title: string;
  readonly hash: Bytes;
  readonly pieces: readonly Piece[] | null;
  readonly clause: string;
  readonly says: string;
}

/** A signature over what a row shows. */
export interface Seal {
  readonly by: "hub" | "witness";
  readonly name: string;
  /** Keys of which one made the signature. */
  readonly keys: readonly Bytes[];
  readonly message: Bytes;
  readonly signature: Bytes;
  readonly clause: string;
  readonly at: bigint | null;
}

/** One level: a node, the sibling that it is hashed with on the way up, and the signatures over it. */
export interface PathRow {
  readonly node: PathNode;
  readonly siblings: readonly PathNode[];
  readonly side: "left" | "right";
  readonly seals: readonly Seal[];
  /** Heading of the tree that begins at this row. */
  readonly section: string | null;
}

const tag = (name: string): Piece => ({
  name: `the tag "${name}" and a zero byte`,
  bytes: utf8(`${name}\0`),
});

interface Draft {
  node: PathNode;
  siblings?: readonly PathNode[];
  side?: "left" | "right";
  seals?: readonly Seal[];
  section?: string;
}

const row = (draft: Draft): PathRow => ({ siblings: [], side: "right", seals: [], section: null, ...draft });

/** The message's own hash. */
function leafNode(receipt: Receipt, msg: Msg | null): PathNode {
  return {
    title: `message ${receipt.stream_seq}`,
    hash: receipt.leaf_hash,
    clause: "core §2",
    says: "The hash of the message: it names label, profile, ciphertext, writer and the writer's counter.",
    pieces:
      msg === null
        ? null
        : [
            tag("veen/leaf"),
            { name: "label", bytes: msg.label },
            { name: "profile_id", bytes: msg.profile_id },
            { name: "ct_hash, the hash of the ciphertext", bytes: msg.ct_hash },
            { name: "client_id, the writer's key", bytes: msg.client_id },
            { name: "client_seq", bytes: u64be(msg.client_seq) },
          ],
  };
}

function receiptSeal(receipt: Receipt, identity: HubIdentity | null): Seal[] {
  if (identity === null) return [];
  return [
    {
      by: "hub",
      name: "the hub signed the receipt",
      keys: activeAt(identity, receipt.hub_ts).map((key) => key.hub_pk),
      message: unsignedDigest(encodeObject("Receipt", receipt)),
      signature: receipt.hub_sig,
      clause: "core §4.3",
      at: receipt.hub_ts,
    },
  ];
}

/** The rows from a message to the root of its label's tree. */
function treeRows(
  proof: MmrProof,
  receipt: Receipt,
  size: bigint,
  root: Bytes,
  leaf: PathNode,
  seals: readonly Seal[],
): PathRow[] {
  const rows: PathRow[] = [];
  let [node, hash, level] = [leaf, proof.leaf_hash, 0];
  let own = seals;
  for (const step of proof.path) {
    const sibling: PathNode = {
      title: "sibling",
      hash: step.sib,
      pieces: null,
      clause: "core §5.2",
      says: `The proof has this hash. It stands for ${plainCount(1n << BigInt(level))} beside the message.`,
    };
    const side = step.dir === 1n ? "left" : "right";
    const section = level === 0 ? "The label's tree (Merkle Mountain Range)" : null;
    rows.push(row({ node, siblings: [sibling], side, seals: own, ...(section === null ? {} : { section }) }));
    own = [];
    const [left, right] = step.dir === 1n ? [step.sib, hash] : [hash, step.sib];
    hash = nodeHash(left, right);
    level += 1;
    node = {
      title: `node over ${1n << BigInt(level)} messages`,
      hash,
      clause: "core §5.1",
      says: "Both hashes below, hashed together.",
      pieces: [tag("veen/mmr-node"), { name: "left", bytes: left }, { name: "right", bytes: right }],
    };
  }
  const [, rank] = ownPeak(receipt.stream_seq - 1n, size);
  const peaks = [...proof.peaks_after.slice(0, rank), hash, ...proof.peaks_after.slice(rank)];
  const others = proof.peaks_after.map((peak): PathNode => ({
    title: "another peak",
    hash: peak,
    pieces: null,
    clause: "core §5.1",
    says: "The proof has this hash: the top of another part of the label's tree.",
  }));
  const section = rows.length === 0 ? { section: "The label's tree (Merkle Mountain Range)" } : {};
  if (others.length > 0) {
    rows.push(row({ node, siblings: others, side: rank > 0 ? "left" : "right", seals: own, ...section }));
    own = [];
  }
  const isRootItself = others.length === 0;
  const made = isRootItself
    ? node
    : {
        title: `root of ${size} messages`,
        hash: rootOf(peaks),
        clause: "core §5.1",
        says: "All peaks of the label's tree, hashed together. Changing any message changes this hash.",
        pieces: [tag("veen/mmr-root"), ...peaks.map((bytes, at) => ({ name: `peak ${at + 1}`, bytes }))],
      };
  rows.push(
    row({
      node: { ...made, title: `root of ${size} ${size === 1n ? "message" : "messages"}`, hash: root },
      seals: own,
    }),
  );
  return rows;
}

const plainCount = (count: bigint): string => (count === 1n ? "one message" : `${count} messages`);

/** A receipt alone: the message, and the hub's signature. */
export function receiptPath(receipt: Receipt, identity: HubIdentity | null, msg: Msg | null): PathRow[] {
  const root: PathNode = {
    title: `root of ${receipt.stream_seq} ${receipt.stream_seq === 1n ? "message" : "messages"}`,
    hash: receipt.mmr_root,
    pieces: null,
    clause: "core §5.1",
    says: "The root that the receipt names. An inclusion proof or the whole log shows how it is made.",
  };
  return [row({ node: leafNode(receipt, msg) }), row({ node: root, seals: receiptSeal(receipt, identity) })];
}

/** An inclusion proof that holds. */
export function proofPath(
  proof: MmrProof,
  receipt: Receipt,
  lead: Lead,
  identity: HubIdentity | null,
  msg: Msg | null,
): PathRow[] {
  const rows = treeRows(
    proof,
    receipt,
    lead.size,
    lead.root,
    leafNode(receipt, msg),
    receiptSeal(receipt, identity),
  );
  const top = rows.pop() as PathRow;
  return [
    ...rows,
    { ...top, node: { ...top.node, says: `The hub signed this root: ${lead.source}. ${top.node.says}` } },
  ];
}

/** Hub evidence: from the message through the label and the hub log to the cosignatures. */
export function evidencePath(
  evidence: HubEvidence,
  known: HubIdentity | null,
  policy: WitnessPolicy | null,
  msg: Msg | null,
): PathRow[] {
  const identity = known ?? evidence.identity;
  const { receipt, head } = evidence;
  const seals = receiptSeal(receipt, identity);
  const signed = parseSignedHead(evidence.checkpoint);
  return [
    ...treeRows(evidence.proof, receipt, head.upto_seq, head.mmr_root, leafNode(receipt, msg), seals),
    ...logRows(head, evidence.index, evidence.head_proof, signed, identity, policy),
  ];
}

/** The rows from a label's head to the root of the hub log, with the signatures of hub and witnesses. */
function logRows(
  head: LabelHead,
  index: bigint,
  proof: readonly Bytes[],
  signed: SignedHead,
  identity: HubIdentity,
  policy: WitnessPolicy | null,
): PathRow[] {
  let node: PathNode = {
    title: `hub log entry ${index + 1n} of ${signed.size}`,
    hash: headLeaf(head),
    clause: "RESOLUTIONS P1",
    says: `The label's head: ${head.upto_seq} messages and their root, as the hub put it into its log.`,
    pieces: [
      { name: "a zero byte", bytes: Uint8Array.of(0) },
      { name: "the head: label, number of messages, root, time", bytes: encodeObject("LabelHead", head) },
    ],
  };
  const rows: PathRow[] = [];
  let below = node.hash;
  for (const step of inclusionSteps(node.hash, index, signed.size, proof)) {
    const sibling: PathNode = {
      title: "sibling",
      hash: step.sibling,
      pieces: null,
      clause: "RFC 6962 §2.1.1",
      says: "The proof has this hash: it stands for other entries of the hub log.",
    };
    const section = rows.length === 0 ? { section: "The hub log (RFC 6962)" } : {};
    rows.push(row({ node, siblings: [sibling], side: step.side, ...section }));
    const [left, right] = step.side === "left" ? [step.sibling, below] : [below, step.sibling];
    node = {
      title: "node",
      hash: step.node,
      clause: "RFC 6962 §2.1",
      says: "Both hashes below, hashed together.",
      pieces: [
        { name: "a byte 1", bytes: Uint8Array.of(1) },
        { name: "left", bytes: left },
        { name: "right", bytes: right },
      ],
    };
    below = step.node;
  }
  const section = rows.length === 0 ? { section: "The hub log (RFC 6962)" } : {};
  const title = "root of the hub log";
  rows.push(
    row({ node: { ...node, title }, seals: noteSeals(signed, identity, policy, head.hub_ts), ...section }),
  );
  return rows;
}

/** A bundle or an export: from the root at its end through the label's head to the hub checkpoint. */
export function rangePath(range: Range, policy: WitnessPolicy | null): PathRow[] {
  const { link, root, size } = range;
  const end: PathNode = {
    title: `root of ${size} ${size === 1n ? "message" : "messages"}`,
    hash: root,
    pieces: null,
    clause: "core §5.1",
    says: "Computed here from every message of the range and the peaks before it; the hub's last receipt in it signs the same.",
  };
  const rows = [row({ node: end, section: "The range" })];
  if (link === null) return rows;
  const { head } = link;
  if (head.upto_seq !== size) {
    const later: PathNode = {
      title: `root of ${head.upto_seq} messages`,
      hash: head.mmr_root,
      pieces: null,
      clause: "B11",
      says: "The root of a later state of the label. A consistency proof, verified here, shows that the range is its start.",
    };
    rows.push(row({ node: later }));
  }
  return [
    ...rows,
    ...logRows(head, link.index, link.proof, parseSignedHead(link.checkpoint), range.identity, policy),
  ];
}

/** A hub checkpoint alone. */
export function checkpointPath(
  signed: SignedHead,
  identity: HubIdentity | null,
  policy: WitnessPolicy | null,
): PathRow[] {
  const node: PathNode = {
    title: "root of the hub log",
    hash: signed.root,
    pieces: null,
    clause: "C2SP tlog-checkpoint",
    says: "The root that the hub signed. Hub evidence shows how a message leads to it.",
  };
  return [row({ node, seals: noteSeals(signed, identity, policy, null) })];
}

/** The signatures under a note that the verdict rests on: of the hub's keys that count, and of the policy's witnesses. */
function noteSeals(
  signed: SignedHead,
  identity: HubIdentity | null,
  policy: WitnessPolicy | null,
  since: bigint | null,
): Seal[] {
  const counting = (identity?.hub_keys ?? []).filter(
    ({ valid_until: until }) => since === null || until === null || since < until,
  );
  const hubKeys = identity === null ? [] : noteKeys({ ...identity, hub_keys: counting }, signed.origin);
  const named: [NoteKey, string][] = [
    ...hubKeys.map((key): [NoteKey, string] => [key, "the hub signed its log"]),
    ...(policy?.witnesses ?? []).map(({ key, name }): [NoteKey, string] => [key, `witness ${name} cosigned`]),
  ];
  return signed.note.signatures.flatMap((line): Seal[] => {
    const found = named.find(([key]) => key.name === line.name && equal(keyIdOf(key), line.keyId));
    if (found === undefined) return [];
    const [key, name] = found;
    const timed = key.kind === COSIGNATURE;
    const at = timed ? cosignedAt(line.signature) : null;
    return [
      {
        by: timed ? "witness" : "hub",
        name,
        keys: [key.public],
        message: utf8(timed ? `cosignature/v1\ntime ${at}\n${signed.note.text}` : signed.note.text),
        signature: timed ? line.signature.slice(8) : line.signature,
        clause: timed ? "C2SP tlog-cosignature" : "C2SP signed-note",
        at,
      },
    ];
  });
}
