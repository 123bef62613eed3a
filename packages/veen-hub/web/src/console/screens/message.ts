/** Message: everything about one entry, and the path that proves it, drawn. */
import { el, foreign } from "../../ui/dom.ts";
import { contentOf } from "../../verify/log/attached.ts";
import { authRef } from "../../verify/log/grants.ts";
import type { Opened } from "../../verify/log/msg.ts";
import { type Bytes, fromHex, hex } from "../../verify/wire/bytes.ts";
import { decodeObject, encodeObject } from "../../verify/wire/codec.ts";
import { VeenError } from "../../verify/wire/errors.ts";
import type { AttachmentRef, Msg } from "../../verify/wire/schema.ts";
import type { App } from "../app.ts";
import { count, size, utc } from "../format.ts";
import { CallError } from "../hub_calls.ts";
import { contentText, dump, recordText } from "../message_body.ts";
import { type MessageProof, type PathNode, proveMessage } from "../message_proof.ts";
import type { Evidence } from "../problems.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, card, facts, hash, save } from "../widgets.ts";
import { keyBox } from "./key_box.ts";

/** Characters of an opened body that are shown. */
const MAX_SHOWN = 100_000;

export function message(app: App, root: HTMLElement, parts: readonly string[]): Stop {
  const label = fromHex(parts[0] ?? "");
  const seq = Number(parts[1]);
  if (label?.length !== 32 || !Number.isSafeInteger(seq) || seq < 1) {
    root.append(el("h1", {}, "Message"), el("p", { role: "alert" }, "This link names no message: it needs a label and a stream_seq."));
    return () => undefined;
  }
  const id = hex(label);
  const slot = el("div", {}, el("p", { class: "quiet empty" }, "Verifying…"));
  const name = app.labels.names.value.get(id);
  root.append(
    el("div", { class: "title" },
      el("a", { class: "back", href: linkTo("streams", id) }, "Stream"),
      el("h1", {}, `Message ${count(seq)}`), name === undefined ? null : foreign(name), hash(id, 16),
      el("span", { class: "pager" },
        seq > 1 ? el("a", { class: "button small", href: linkTo("message", id, seq - 1), "data-key": "k" }, "Previous") : null,
        el("a", { class: "button small", href: linkTo("message", id, seq + 1), "data-key": "j" }, "Next"))),
    slot);
  let isOpen = true;
  let stopKeys: Stop = () => undefined;
  const show = async () => {
    const confirmed = app.trust.hub.value;
    if (confirmed === undefined) return;
    try {
      let proof = await proveMessage(app.hub, confirmed, app.hubLog, label, seq);
      if (proof.checks.some((check) => check.verdict === "fails")) { // the hub may have rotated its key since
        await app.trust.refresh();
        proof = await proveMessage(app.hub, app.trust.hub.value ?? confirmed, app.hubLog, label, seq);
      }
      await compareReceipt(app, proof, seq);
      if (!isOpen) return;
      const failed = proof.checks.filter((check) => check.verdict === "fails");
      app.audit.add("check", `message ${seq} of ${id}: ${failed.length === 0 ? "holds" : failed.map((each) => each.detail).join("; ")}`,
        failed.length === 0 ? "ok" : "failed");
      report(app, proof, id, seq);
      stopKeys = draw(app, slot, proof, seq);
    } catch (error) {
      if (!(error instanceof VeenError || error instanceof CallError)) throw error;
      if (error instanceof VeenError) app.problems.report("streams", id, `message ${seq}: ${error.message}`, true, signedHead(app, label));
      if (isOpen) slot.replaceChildren(el("div", { class: "problem lie", role: "alert" }, el("strong", {}, "Not shown"), el("p", {}, foreign(error.message))));
    }
  };
  void show();
  return () => {
    isOpen = false;
    stopKeys();
  };
}

/** What the hub signed of a label: the hub checkpoint and the label's head below it. */
function signedHead(app: App, label: Bytes): Evidence[] {
  const { head: hubHead, labels } = app.hubLog.view.value;
  const head = labels.get(hex(label));
  if (head === undefined || hubHead === undefined) return [];
  return [{ name: "hub-checkpoint.txt", bytes: hubHead.note }, { name: `label-head-${head.upto_seq}.cbor`, bytes: encodeObject("LabelHead", head) }];
}

/** Ask for the receipt by itself as well: a second receipt for the same place would convict the hub. */
async function compareReceipt(app: App, proof: MessageProof, seq: number): Promise<void> {
  const { receipt } = decodeObject("ReceiptResponse", await app.hub.receipt(proof.receipt.label, seq));
  const watch = app.labels.open(proof.receipt.label);
  await watch.compare(proof.receipt);
  await watch.compareTwo(proof.receipt, receipt);
}

function report(app: App, proof: MessageProof, id: string, seq: number): void {
  const failed = proof.checks.find((check) => check.verdict === "fails");
  if (failed === undefined) return;
  const identity = app.trust.hub.value?.identity;
  app.problems.report("streams", id, `message ${seq}: ${failed.detail}`, true, [
    { name: `message-${seq}.cbor`, bytes: proof.wire },
    { name: `receipt-${seq}.cbor`, bytes: encodeObject("Receipt", proof.receipt) },
    ...(identity === undefined ? [] : [{ name: "hub-identity.cbor", bytes: encodeObject("HubIdentity", identity) }]),
    ...(proof.evidence === undefined ? [] : [{ name: `message-${seq}.evidence.cbor`, bytes: proof.evidence }]),
  ]);
}

function draw(app: App, slot: HTMLElement, proof: MessageProof, seq: number): Stop {
  const { msg, receipt, evidence } = proof;
  const content = el("div");
  const id = hex(receipt.label);
  const failed = proof.checks.some((check) => check.verdict === "fails");
  const unproven = proof.checks.find((check) => check.verdict === "open");
  const sign = el("span");
  const stopSign = app.problems.all.watch((all) => {
    const streamFails = all.some((each) => each.isLie && each.subject === id);
    sign.replaceChildren(failed ? badge("fails", "does not hold")
      : streamFails ? badge("fails", "verified, but this stream does not hold")
        : unproven ? badge("open", "verified, not confirmed", unproven.detail) : badge("holds", "verified and confirmed"));
  });
  slot.replaceChildren(
    el("p", { class: "verdict-line" },
      sign,
      ...(evidence === undefined ? [] : [
        el("button", { type: "button", class: "small", onclick: () => save(app.audit, `message-${seq}.evidence.cbor`, evidence) }, "Download the evidence"),
        el("span", { class: "quiet" }, "as a file for ", el("code", {}, "veen verify"), ", or for the verifier page")])),
    el("div", { class: "grid" },
      card("Content", content, msg === undefined ? null : keyBox(app)),
      card("What was checked", el("ol", { class: "checks" }, ...proof.checks.map((check) => el("li", {},
        badge(check.verdict, check.name), el("span", { class: "clause quiet" }, check.clause), el("p", {}, foreign(check.detail)))))),
      card("Path", pathDrawing(proof.path)),
      card("Message", msg === undefined ? tokenFacts(proof) : messageFacts(msg)),
      card("Receipt", facts([
        ["stream_seq", count(Number(receipt.stream_seq))],
        ["hub_ts", `${utc(Number(receipt.hub_ts))} UTC`],
        ["leaf_hash", hash(hex(receipt.leaf_hash))],
        ["mmr_root", hash(hex(receipt.mmr_root))],
        ["hub_sig", hash(hex(receipt.hub_sig), 32)],
      ])),
      card("Raw CBOR",
        el("details", {}, el("summary", {}, `${msg === undefined ? "Token" : "MSG"}, ${size(proof.wire.length)}`), rawCbor(proof.wire)),
        el("details", {}, el("summary", {}, "RECEIPT"), rawCbor(encodeObject("Receipt", receipt))),
        el("div", { class: "buttons" },
          el("button", { type: "button", class: "small", onclick: () => save(app.audit, `message-${seq}.cbor`, proof.wire) }, "Download the message"),
          el("button", { type: "button", class: "small", onclick: () => save(app.audit, `receipt-${seq}.cbor`, encodeObject("Receipt", receipt)) }, "Download the receipt")))));
  if (msg === undefined) {
    content.append(el("p", {}, "An authorized token, which is not sealed."));
    return stopSign;
  }
  const stopContent = app.keys.keys.watch(() => void drawContent(app, content, msg));
  return () => {
    stopSign();
    stopContent();
  };
}

/** Text of others in lines: each line keeps its direction to itself. */
function foreignLines(text: string): HTMLElement {
  return el("span", {}, ...text.split("\n").flatMap((line, at) => (at === 0 ? [foreign(line)] : ["\n", foreign(line)])));
}

/** An object in diagnostic notation, and below it byte by byte. */
function rawCbor(bytes: Bytes): HTMLElement {
  return el("div", {},
    el("pre", { class: "dump mono", tabindex: 0, "aria-label": "diagnostic notation" }, foreignLines(recordText(bytes) ?? "")),
    el("pre", { class: "dump mono", tabindex: 0, "aria-label": "bytes" }, dump(bytes)));
}

async function drawContent(app: App, slot: HTMLElement, msg: Msg): Promise<void> {
  const opened = await app.keys.open(msg);
  if (opened === undefined) {
    slot.replaceChildren(
      el("p", {}, badge("open", "sealed"), app.keys.keys.value.length ? " No key in this tab opens it." : " Give a reader key to open it here."),
      el("details", {}, el("summary", {}, `Ciphertext, ${size(msg.ciphertext.length)}`), el("pre", { class: "dump mono", tabindex: 0 }, dump(msg.ciphertext))));
    return;
  }
  const attachments = attachmentsOf(opened);
  if (typeof attachments === "string") {
    slot.replaceChildren(el("p", {}, badge("fails", "does not open"), " ", foreign(attachments)));
    return;
  }
  app.audit.add("key", `message opened in this tab: client_seq ${msg.client_seq} of ${hex(msg.client_id)}`);
  slot.replaceChildren(
    el("p", {}, badge("holds", "opened"), ` ${size(opened.body.length)}, in this tab only`),
    el("pre", { class: "body", tabindex: 0 }, foreignLines(contentText(opened).slice(0, MAX_SHOWN))),
    facts([
      ["schema", hash(hex(opened.header.schema), 16)],
      ["parent", opened.header.parent_id === null ? null : hash(hex(opened.header.parent_id), 16)],
      ["expires", opened.header.expires_at === null ? null : `${utc(Number(opened.header.expires_at))} UTC`],
      ["att_root", opened.header.att_root === null ? null : hash(hex(opened.header.att_root), 16)],
      ["attachments", attachments.length === 0 ? null : el("span", {}, ...attachments.map((each) =>
        el("div", {}, hash(hex(each.coid), 16), ` ${size(Number(each.size))}`)))],
    ]));
}

/** The attachments that a message lists; a text says why the list is refused. */
function attachmentsOf(opened: Opened): readonly AttachmentRef[] | string {
  try {
    return contentOf(opened).attachments;
  } catch (error) {
    if (error instanceof VeenError) return error.message;
    throw error;
  }
}

function messageFacts(msg: Msg): HTMLElement {
  return facts([
    ["client_id", hash(hex(msg.client_id))],
    ["client_seq", count(Number(msg.client_seq))],
    ["prev_ack", count(Number(msg.prev_ack))],
    ["auth_ref", msg.auth_ref === null ? "none" : hash(hex(msg.auth_ref))],
    ["ct_hash", hash(hex(msg.ct_hash))],
    ["profile_id", hash(hex(msg.profile_id), 16)],
    ["ciphertext", size(msg.ciphertext.length)],
    ["sig", hash(hex(msg.sig), 32)],
  ]);
}

function tokenFacts({ token }: MessageProof): HTMLElement | null {
  if (token === undefined) return null;
  return facts([
    ["auth_ref", hash(hex(authRef(token)))],
    ["issuer", hash(hex(token.issuer_pk))],
    ["subject", hash(hex(token.subject_pk))],
    ["streams", String(token.allow.stream_ids.length)],
    ["ttl", `${token.allow.ttl} s`],
  ]);
}

/** The way from the leaf to the checkpoint: each hash was computed here from the one below and its sibling. */
function pathDrawing(path: readonly PathNode[]): HTMLElement {
  return el("ol", { class: "path" }, ...path.map((node) => el("li", { class: `${node.kind} ${node.side ?? ""}` },
    el("span", { class: "title" }, node.title),
    el("span", { class: "pair" },
      node.side === "left" ? el("span", { class: "sibling", title: "the sibling, on the left" }, hash(node.sibling as string, 8), " + ") : null,
      node.side === undefined ? null : el("span", { class: "quiet" }, "this"),
      node.side === "right" ? el("span", { class: "sibling", title: "the sibling, on the right" }, " + ", hash(node.sibling as string, 8)) : null,
      node.side === undefined ? null : el("span", { class: "quiet" }, " → "),
      hash(node.hash, 16)))));
}
