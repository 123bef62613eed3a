/** Capabilities: the tokens that the hub authorized, each verified from its issuer's signatures (core §6, H5). */
import { el, foreign, visible } from "../../ui/dom.ts";
import { authRef } from "../../verify/log/grants.ts";
import { streamId } from "../../verify/log/stream.ts";
import { hex } from "../../verify/wire/bytes.ts";
import { decodeObject } from "../../verify/wire/codec.ts";
import { plural, VeenError } from "../../verify/wire/errors.ts";
import type { CapToken } from "../../verify/wire/schema.ts";
import type { App } from "../app.ts";
import { count, short, span, utc } from "../format.ts";
import { CallError } from "../hub_calls.ts";
import type { Row } from "../label_chain.ts";
import { go, linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { VirtualList } from "../virtual_list.ts";
import { badge, card, facts, field, hash, type Verdict } from "../widgets.ts";

/** Rows that are in view at once. */
const MAX_SHOWN = 9;

/** The hub's time: of the newest verified receipt or head, and of the status, which is not signed. */
interface Now {
  readonly signed: number;
  readonly said: number;
}

interface Validity {
  readonly verdict: Verdict;
  readonly text: string;
}

export function capabilities(app: App, root: HTMLElement): Stop {
  const hub = app.trust.hub.value;
  if (hub === undefined) return () => undefined;
  const watch = app.labels.open(hub.status.control_label, 1);
  const control = hex(hub.status.control_label);
  const summary = el("p", { class: "quiet" });
  const wanted = el("input", { type: "text", autocomplete: "off", spellcheck: "false", "data-search": "",
    placeholder: "auth_ref, issuer or subject begins with …" });
  const detail = el("div", { class: "token-detail" });
  const now = (): Now => ({ signed: Number(app.trust.newestHubTs), said: Number(app.trust.hub.value?.status.hub_ts ?? 0n) });
  const rowHeight = matchMedia("(max-width: 800px)").matches ? 68 : 44;
  const list = new VirtualList<Row>({
    rowHeight,
    label: "Tokens",
    keyOf: (row) => `${row.seq}-${row.verdict}-${validity(row, now()).text}`,
    render: (row) => tokenRow(row, validity(row, now())),
    onOpen: (row) => detail.replaceChildren(describe(app, row, validity(row, now()), control)),
  });
  const show = () => {
    const { rows, phase, note } = watch.view.value;
    const text = wanted.value.trim().toLowerCase();
    const shown = rows.filter(({ token }) => !text || (token !== undefined
      && [authRef(token), token.issuer_pk, token.subject_pk].some((each) => hex(each).startsWith(text))));
    list.root.style.blockSize = `${Math.min(MAX_SHOWN, Math.max(1, shown.length)) * rowHeight + 2}px`;
    list.setItems(shown);
    const valid = rows.filter((row) => validity(row, now()).verdict === "holds").length;
    const state = note === "no entries yet" ? "This hub has authorized no token yet." : phase === "starting" ? "Reading…"
      : `${plural(rows.length, "token")}, ${count(valid)} not expired, read from the first on and verified.`;
    summary.textContent = `${state}${hub.status.gating ? "" : " Gating is off: writers need none."}`;
  };
  wanted.addEventListener("input", show);
  root.append(
    el("h1", {}, "Capabilities"),
    el("p", { class: "lead" },
      "Who may write to which stream, for how long and how fast. Revocations are sealed records of a realm: only its members can read them. ",
      el("a", { href: linkTo("revocations") }, "Revocations of a realm")),
    el("div", { class: "toolbar" }, field("Find", wanted)), summary,
    el("div", { class: "columns token-columns", "aria-hidden": "true" },
      ...["auth_ref", "issuer", "subject", "streams", "state", "ends (UTC)"].map((name) => el("span", {}, name))),
    list.root, detail);
  const stop = watch.view.watch(show);
  const tick = setInterval(show, 10_000);
  return () => {
    stop();
    clearInterval(tick);
    list.close();
  };
}

/** Whether a token can still be used, by the time of the hub; an authorized token ends its ttl after its receipt. */
function validity(row: Row, now: Now): Validity {
  const { token, receipt } = row;
  if (row.verdict === "fails" || token === undefined || receipt === undefined) return { verdict: "fails", text: "does not hold" };
  const end = Number(receipt.hub_ts + token.allow.ttl);
  if (end <= now.signed) return { verdict: "open", text: "expired" };
  return end > now.said ? { verdict: "holds", text: "not expired" } : { verdict: "open", text: "expired, by the hub's unsigned clock" };
}

function tokenRow(row: Row, state: Validity): HTMLElement {
  const { token, receipt } = row;
  const name = (bytes: Uint8Array | undefined) => (bytes === undefined ? "" : short(hex(bytes)));
  return el("div", { class: `token-row ${row.verdict}` },
    el("span", { class: "mono" }, token === undefined ? "" : name(authRef(token))),
    el("span", { class: "mono issuer" }, name(token?.issuer_pk)),
    el("span", { class: "mono" }, name(token?.subject_pk)),
    el("span", { class: "quiet" }, token === undefined || receipt === undefined ? "" : plural(token.allow.stream_ids.length, "stream")),
    el("span", {}, badge(state.verdict, state.text, row.reason)),
    el("span", { class: "quiet until" }, receipt === undefined || token === undefined ? foreign(row.reason)
      : `until ${utc(Number(receipt.hub_ts + token.allow.ttl))}`));
}

function describe(app: App, row: Row, state: Validity, control: string): HTMLElement {
  const { token, receipt } = row;
  if (token === undefined || receipt === undefined) return card("Token", el("p", { class: "error" }, foreign(row.reason)));
  const said = el("span", { class: "quiet" });
  const ask = el("button", { type: "button", class: "small", onclick: () => void askHub(app, token, said) }, "Ask the hub");
  return card("Token",
    facts([
      ["State", badge(state.verdict, state.text)],
      ["auth_ref", hash(hex(authRef(token)))],
      ["Issuer", hash(hex(token.issuer_pk))],
      ["Subject", hash(hex(token.subject_pk))],
      ["Streams", el("span", {}, ...token.allow.stream_ids.map((id) => streamName(app, hex(id))))],
      ["Lasts", `${span(Number(token.allow.ttl))} from ${utc(Number(receipt.hub_ts))}`],
      ["Rate", token.allow.rate === null ? "no limit" : `${token.allow.rate.per_sec} per second, ${token.allow.rate.burst} at once`],
      ["Signatures", plural(token.sig_chain.length, "link")],
    ]),
    el("div", { class: "buttons" }, ask,
      el("button", { type: "button", class: "small", onclick: () => go(linkTo("message", control, row.seq)) }, "Show the proof")), said);
}

/** Name a stream whose name this page has been told; any other stays a hash. */
function streamName(app: App, id: string): HTMLElement {
  const known = [...app.labels.names.value.values()].find((name) => hex(streamId(name)) === id);
  return el("div", {}, known === undefined ? hash(id, 16) : foreign(known));
}

/** The hub's own record of a token; it is not signed. */
async function askHub(app: App, token: CapToken, slot: HTMLElement): Promise<void> {
  try {
    const status = decodeObject("CapStatus", await app.hub.capStatus(hex(authRef(token))));
    slot.textContent = status.known
      ? ` The hub says, unsigned: known, expires ${status.expires_at === null ? "never" : utc(Number(status.expires_at))}.`
      : " The hub says, unsigned: not known.";
  } catch (error) {
    if (!(error instanceof CallError || error instanceof VeenError)) throw error;
    slot.textContent = ` ${visible(error.message)}`;
  }
}
