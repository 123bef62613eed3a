/** Show what a hash is made of and compute it again, or verify a signature again, at the reader's wish. */

import type { PathNode, Seal } from "../verify/evidence/path.ts";
import { formatUtc } from "../verify/evidence/verdict.ts";
import { hashLarge } from "../verify/crypto/hash.ts";
import { engine, isValid } from "../verify/crypto/signatures.ts";
import { type Bytes, concat, equal, hex } from "../verify/wire/bytes.ts";
import { el, foreign, foreignLines } from "../ui/dom.ts";
import type { Chosen } from "./drawing.ts";

/** Bytes of a piece that are shown before the rest is left out. */
const MAX_SHOWN = 96;

export function recomputed(chosen: Chosen): HTMLElement {
  const panel = el("section", { class: "recompute panel", tabindex: -1, "aria-live": "polite" });
  if ("node" in chosen) panel.append(...nodeParts(chosen.node));
  else panel.append(...sealParts(chosen.seal));
  return panel;
}

function nodeParts(node: PathNode): HTMLElement[] {
  const head = [
    el("h4", {}, node.title, " ", el("span", { class: "quiet clause" }, node.clause)),
    el("p", {}, node.says),
    el("code", { class: "full" }, hex(node.hash)),
  ];
  if (node.pieces === null) {
    return [
      ...head,
      el(
        "p",
        { class: "quiet" },
        "What this hash is made of is not in the file, and need not be: a proof has the hashes beside the path only.",
      ),
    ];
  }
  const outcome = el("p", { class: "outcome" }, "Computing …");
  const bytes = concat(...node.pieces.map((piece) => piece.bytes));
  const list = el(
    "dl",
    { class: "pieces" },
    ...node.pieces.flatMap(({ name, bytes: piece }) => [
      el("dt", {}, name),
      el("dd", {}, el("code", {}, shownBytes(piece))),
    ]),
  );
  void compute(bytes, node.hash, outcome);
  return [
    ...head,
    el("p", {}, `SHA-256 of these ${bytes.length} bytes, one after the other:`),
    list,
    outcome,
  ];
}

async function compute(bytes: Bytes, expected: Bytes, outcome: HTMLElement): Promise<void> {
  const native = globalThis.crypto?.subtle;
  const made =
    native === undefined ? await hashLarge(bytes) : new Uint8Array(await native.digest("SHA-256", bytes));
  const same = equal(made, expected);
  outcome.className = `outcome ${same ? "holds" : "fails"}`;
  outcome.replaceChildren(
    same ? "✓ Computed again just now: the same hash." : "✗ Computed again just now: another hash. ",
    same ? "" : el("code", { class: "full" }, hex(made)),
  );
}

function sealParts(seal: Seal): HTMLElement[] {
  const outcome = el("p", { class: "outcome" }, "Verifying …");
  void verifyAgain(seal, outcome);
  const at = seal.at === null ? [] : [el("dt", {}, "time"), el("dd", {}, formatUtc(seal.at))];
  const list = el(
    "dl",
    { class: "pieces" },
    el("dt", {}, seal.keys.length > 1 ? "keys" : "key"),
    el("dd", {}, ...seal.keys.map((key) => el("code", {}, hex(key)))),
    el("dt", {}, seal.message.length === 32 ? "what was signed (a hash)" : "what was signed"),
    el(
      "dd",
      {},
      seal.message.length === 32
        ? el("code", {}, hex(seal.message))
        : foreignLines(new TextDecoder().decode(seal.message)),
    ),
    el("dt", {}, "signature"),
    el("dd", {}, el("code", {}, hex(seal.signature))),
    ...at,
  );
  return [
    el("h4", {}, foreign(seal.name), " ", el("span", { class: "quiet clause" }, seal.clause)),
    list,
    outcome,
  ];
}

async function verifyAgain(seal: Seal, outcome: HTMLElement): Promise<void> {
  let valid = false;
  for (const key of seal.keys) valid ||= await isValid(key, seal.message, seal.signature);
  outcome.className = `outcome ${valid ? "holds" : "fails"}`;
  const by = await engine();
  outcome.textContent = valid
    ? `✓ Verified again just now, by ${by}: the key made this Ed25519 signature.`
    : "✗ Verified again just now: the key did not make this signature.";
}

function shownBytes(bytes: Bytes): string {
  return bytes.length <= MAX_SHOWN
    ? hex(bytes)
    : `${hex(bytes.subarray(0, MAX_SHOWN))}… (${bytes.length} bytes)`;
}
