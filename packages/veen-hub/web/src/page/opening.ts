/** Open messages with a reader key that the user gives; the key stays in this page's memory. */

import type { Recognized } from "../verify/evidence/recognize.ts";
import { type Content, contentOf } from "../verify/log/attached.ts";
import { openMsg } from "../verify/log/msg.ts";
import { type Bytes, fromHex, fromUtf8, hex } from "../verify/wire/bytes.ts";
import { decode } from "../verify/wire/cbor.ts";
import { decodeObject } from "../verify/wire/codec.ts";
import { VeenError } from "../verify/wire/errors.ts";
import type { Msg } from "../verify/wire/schema.ts";
import { el, foreignLines } from "../ui/dom.ts";
import { cborText } from "./details.ts";

/** Return the secrets in a reader key: 64 hex digits, or the bytes of an identity's secrets.cbor. */
export function readerKeys(text: string, file: Bytes | null): Bytes[] {
  const typed = fromHex(text.trim());
  const keys = typed !== undefined && typed.length === 32 ? [typed] : [];
  if (file === null) return keys;
  const secrets = decodeObject("Secrets", file);
  return [...keys, secrets.id_dh, ...secrets.prekeys.map((prekey) => prekey.secret)];
}

/** Return the MSG in a file; null if it holds none. */
export function msgOf({ thing }: Recognized): Msg | null {
  if (thing.kind === "Msg") return thing.value;
  if (thing.kind !== "Entry" || thing.value.isAuthorize) return null;
  try {
    return decodeObject("Msg", thing.value.msgBytes);
  } catch (error) {
    if (error instanceof VeenError) return null;
    throw error;
  }
}

/** Return what a message says, or why it does not open. */
export async function openedView(msg: Msg, keys: readonly Bytes[]): Promise<HTMLElement> {
  let why = "";
  for (const key of keys) {
    try {
      return contentView(contentOf(await openMsg(msg, key)));
    } catch (error) {
      if (!(error instanceof VeenError)) throw error;
      why = error.full;
    }
  }
  return el("div", { class: "opened" }, el("h4", {}, "Not opened"), el("p", {}, why));
}

/** Messages of a range that are shown before the rest is left out. */
const MAX_SHOWN = 100;

/** Return a list of the messages of a range, each opened if a key fits. */
export function messagesView(messages: readonly Bytes[], keys: readonly Bytes[]): HTMLElement {
  const list = el("ol", { class: "messages" });
  for (const wire of messages.slice(0, MAX_SHOWN)) {
    const item = el("li", {}, "…");
    list.append(item);
    void openedView(decodeObject("Msg", wire), keys).then((view) => item.replaceChildren(view));
  }
  const left = messages.length - MAX_SHOWN;
  const more = left > 0 ? el("p", { class: "quiet" }, `… and ${left} more messages`) : null;
  return el("details", { class: "fields" }, el("summary", {}, `Messages (${messages.length})`), list, more);
}

function contentView({ schema, body, attachments }: Content): HTMLElement {
  const named = el("p", { class: "quiet" }, "schema ", el("code", {}, hex(schema)));
  const files = attachments.map(({ coid, size }) => el("li", {}, el("code", {}, hex(coid)), ` ${size} bytes`));
  const list = files.length > 0 ? el("ul", { class: "quiet", "aria-label": "attachments" }, ...files) : null;
  return el("div", { class: "opened" }, el("h4", {}, "Opened with your reader key"), bodyView(body), list, named);
}

function bodyView(body: Bytes): HTMLElement {
  const text = fromUtf8(body);
  if (text !== undefined && !/[\u0000-\u0008\u000e-\u001f]/.test(text)) return el("pre", {}, foreignLines(text));
  try {
    return el("pre", {}, foreignLines(cborText(decode(body))));
  } catch {
    return el("pre", {}, el("code", {}, hex(body)));
  }
}
