/** The verdicts as cards, under one sentence that sums them up. */

import {
  checkpointPath,
  evidencePath,
  type PathRow,
  proofPath,
  rangePath,
  receiptPath,
} from "../verify/evidence/path.ts";
import type { Verdict } from "../verify/evidence/verdict.ts";
import type { Report } from "../verify/evidence/verify.ts";
import { type Bytes, equal, hex } from "../verify/wire/bytes.ts";
import type { Msg, Receipt } from "../verify/wire/schema.ts";
import { leafHash } from "../verify/log/msg.ts";
import { el, foreign } from "../ui/dom.ts";
import { detailsOf, rowsView } from "./details.ts";
import { pathView } from "./drawing.ts";
import { hintFor, sentenceFor } from "./kinds.ts";
import { messagesView, msgOf, openedView } from "./opening.ts";
import { recomputed } from "./recompute.ts";

/** Cards that are shown at once; a chunk may hold tens of thousands of entries. */
const MAX_CARDS = 100;

const MARKS = { holds: ["✓", "holds"], fails: ["✗", "does not hold"], open: ["?", "not decided"] } as const;
type State = keyof typeof MARKS;

const stateOf = (verdict: Verdict): State =>
  verdict.holds === false ? "fails" : verdict.holds === null || !verdict.complete ? "open" : "holds";

function badge(state: State): HTMLElement {
  const [mark, word] = MARKS[state];
  return el("span", { class: `badge ${state}` }, el("span", { "aria-hidden": "true" }, mark), word);
}

/** What only the sender's word supports, in the words of the summary. */
const PROPOSALS = { hub: "hub", policy: "witness policy" } as const;
type Unconfirmed = readonly (keyof typeof PROPOSALS)[];

/** Return the whole result. `unconfirmed` lists what came with the evidence and the reader did not confirm. */
export function resultsView(
  report: Report,
  readers: readonly Bytes[],
  pin: Bytes | null,
  unconfirmed: Unconfirmed,
): HTMLElement[] {
  const order: State[] = ["fails", "open", "holds"];
  const sorted = [...report.verdicts].sort((a, b) => order.indexOf(stateOf(a)) - order.indexOf(stateOf(b)));
  const cards = sorted.slice(0, MAX_CARDS).map((verdict) => card(verdict, report, readers));
  const left = sorted.length - cards.length;
  const more =
    left > 0 ? [el("p", { class: "quiet" }, `… and ${left} more objects, all counted above.`)] : [];
  return [summary(report.verdicts, pin, unconfirmed), ...cards, ...more];
}

function summary(verdicts: readonly Verdict[], pin: Bytes | null, unconfirmed: Unconfirmed): HTMLElement {
  const count = (state: State): number => verdicts.filter((verdict) => stateOf(verdict) === state).length;
  const [fails, open, holds] = [count("fails"), count("open"), count("holds")];
  const all = verdicts.length === 1 ? "It was" : `All ${verdicts.length} objects were`;
  const state: State = fails > 0 ? "fails" : open > 0 || unconfirmed.length > 0 ? "open" : "holds";
  const titles: Record<State, string> = {
    fails:
      fails === verdicts.length && fails === 1
        ? "This does not hold."
        : `${fails} of ${verdicts.length} do not hold.`,
    open: open > 0 ? "Something is missing to decide." : `It holds, if the ${PROPOSALS[unconfirmed[0] ?? "hub"]} is the right one.`,
    holds: verdicts.length === 1 ? "This holds." : "Everything holds.",
  };
  const lines: Record<State, string> = {
    fails: "Do not rely on the parts marked below. The reason names the rule that is broken.",
    open:
      open > 0
        ? `${open} of ${verdicts.length} cannot be decided with what is here; ${holds} ${holds === 1 ? "holds" : "hold"}.`
        : unconfirmed.includes("hub")
          ? "The hub's id came with the evidence. Compare it with the id that you have from the hub's operator, then confirm it above."
          : "The witness policy came as a file. Compare it with what you know of the witnesses, then confirm it above.",
    holds: pin === null ? `${all} verified.` : `${all} verified, for the hub that you named.`,
  };
  return el(
    "div",
    { class: `summary ${state}`, role: "status" },
    el("span", { class: "mark", "aria-hidden": "true" }, MARKS[state][0]),
    el("div", {}, el("h2", {}, titles[state]), el("p", {}, lines[state])),
  );
}

function card(verdict: Verdict, report: Report, readers: readonly Bytes[]): HTMLElement {
  const state = stateOf(verdict);
  const hint = verdict.holds === null ? hintFor(verdict.why) : null;
  const steps =
    verdict.steps.length > 0
      ? el("ol", { class: "steps" }, ...verdict.steps.map((step) => el("li", {}, foreign(step))))
      : null;
  const made = el(
    "article",
    { class: `card panel ${state}` },
    el("header", {}, badge(state), el("h3", {}, foreign(verdict.kind)), foreign(verdict.file, "file quiet")),
    el("p", { class: "quiet" }, sentenceFor(verdict.kind)),
    el("p", { class: "why" }, foreign(verdict.why)),
    hint === null ? null : el("p", { class: "hint" }, hint),
    verdict.clause === null || state !== "fails"
      ? null
      : el("p", { class: "rule" }, "The rule: ", el("strong", {}, foreign(verdict.clause))),
    steps,
  );
  const rows = verdict.holds === true ? rowsOf(verdict, report) : [];
  if (rows.length > 0) made.append(drawing(rows));
  const thing = verdict.found?.thing;
  const rowTable = thing?.kind === "ResultFile" && verdict.holds !== false ? rowsView(thing.value) : null;
  if (rowTable !== null) made.append(rowTable);
  const msg = verdict.found === null ? null : msgOf(verdict.found);
  if (msg !== null && readers.length > 0) {
    const place = el("div", {});
    made.append(place);
    void openedView(msg, readers).then((view) => place.replaceWith(view));
  }
  if (verdict.range !== null && readers.length > 0)
    made.append(messagesView(verdict.range.messages, readers));
  const fields = verdict.found === null ? null : detailsOf(verdict.found.thing);
  if (fields !== null) made.append(fields);
  return made;
}

function drawing(rows: readonly PathRow[]): HTMLElement {
  const place = el("div", { class: "chosen" });
  const view = pathView(rows, (chosen) => {
    const panel = recomputed(chosen);
    place.replaceChildren(panel);
    panel.scrollIntoView({ block: "nearest" });
  });
  const caption = el(
    "p",
    { class: "quiet caption" },
    "Read it from the bottom up. Choose any hash or signature to have it computed again.",
  );
  return el("div", { class: "why-drawn" }, el("h4", {}, "Why it holds"), caption, view, place);
}

/** Return the rows to draw for a verdict that holds. */
function rowsOf(verdict: Verdict, report: Report): PathRow[] {
  const thing = verdict.found?.thing;
  const { identity, policy } = report;
  if (verdict.range !== null) return rangePath(verdict.range, policy);
  switch (thing?.kind) {
    case "HubEvidence":
      return evidencePath(thing.value, identity, policy, msgFor(thing.value.receipt, report));
    case "Receipt":
      return receiptPath(thing.value, identity, msgFor(thing.value, report));
    case "Entry":
      return receiptPath(thing.value.receipt, identity, msgFor(thing.value.receipt, report));
    case "SignedHead":
      return checkpointPath(thing.value, identity, policy);
    case "MmrProof": {
      const receipt = receiptOf(thing.value.leaf_hash, report);
      if (receipt === null || verdict.leads === null) return [];
      return proofPath(thing.value, receipt, verdict.leads, identity, msgFor(receipt, report));
    }
    default:
      return [];
  }
}

function receiptOf(leaf: Bytes, report: Report): Receipt | null {
  for (const { found } of report.verdicts) {
    const receipt =
      found?.thing.kind === "Receipt"
        ? found.thing.value
        : found?.thing.kind === "Entry"
          ? found.thing.value.receipt
          : null;
    if (receipt !== null && equal(receipt.leaf_hash, leaf)) return receipt;
  }
  return null;
}

/** Return the MSG among the files that a receipt is for. */
function msgFor(receipt: Receipt, report: Report): Msg | null {
  for (const { found } of report.verdicts) {
    const msg = found === null ? null : msgOf(found);
    if (msg !== null && hex(leafHash(msg.label, msg)) === hex(receipt.leaf_hash)) return msg;
  }
  return null;
}
