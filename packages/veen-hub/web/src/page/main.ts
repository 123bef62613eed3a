/** The verifier page: files come in, verdicts come out, and nothing leaves. */

import { type EvidenceFile, MAX_FILE_BYTES } from "../verify/evidence/recognize.ts";
import { type Verdict, verdict } from "../verify/evidence/verdict.ts";
import { reportOn } from "../verify/evidence/verify.ts";
import { type Bytes, fromHex, fromUtf8, hex } from "../verify/wire/bytes.ts";
import { VeenError } from "../verify/wire/errors.ts";
import { byId, el, foreign, foreignLines } from "../ui/dom.ts";
import { themeButton } from "../ui/theme.ts";
import { evidenceIn, ownEvidence } from "./embedded.ts";
import { filesIn, read } from "./files.ts";
import { withFiles } from "./held.ts";
import { readerKeys } from "./opening.ts";
import { resultsView } from "./results.ts";
import { choose, type Desk, type Named, NOTHING, propose } from "./trust.ts";

interface State {
  files: readonly EvidenceFile[];
  /** Files that the browser did not read: each makes the whole result fail until it is removed. */
  unread: readonly Verdict[];
  secrets: Bytes | null;
  /** The hub's id and the witness policy that came with the evidence. */
  proposed: Named;
}

const state: State = { files: [], unread: [], secrets: null, proposed: NOTHING };
const hubField = byId<HTMLInputElement>("hub");
const policyField = byId<HTMLTextAreaElement>("policy");
const readerField = byId<HTMLInputElement>("reader");
const confirmBox = byId<HTMLInputElement>("confirmed");
const results = byId("results");

/** Time for the browser to show that a run began, before the work of the run blocks the page. */
const PAINT_MS = 30;

let latest = 0;
/** Files are being read: until they are, no verdict is about all that was given. */
let reading = 0;

/** Return what the reader entered and what the sender proposes. */
function desk(): Desk {
  const own = {
    hub: hubField.value.trim().toLowerCase(),
    policy: policyField.value.trim() === "" ? "" : policyField.value,
  };
  return { own, proposed: state.proposed, confirmed: confirmBox.checked };
}

/** Remove the verdict, which no longer is about what is here; return the number of the run that began. */
function begin(): number {
  latest += 1;
  results.setAttribute("aria-busy", "true");
  results.replaceChildren(el("p", { class: "quiet", role: "status" }, "Verifying…"));
  return latest;
}

/** Read files, then verify everything; `name` names them if the reading fails. */
async function afterReading(name: string, work: () => Promise<void>): Promise<void> {
  reading += 1;
  begin();
  try {
    await work();
  } catch (error) {
    state.unread = [...state.unread, notRead(name, reasonOf(error))];
  }
  reading -= 1;
  await run();
}

/** Verify what is here, and show it; an older run that ends later is dropped. */
async function run(): Promise<void> {
  const mine = begin();
  let shown: HTMLElement[];
  try {
    showFiles();
    showProposal();
    await new Promise((resolve) => setTimeout(resolve, PAINT_MS));
    if (mine !== latest || reading > 0) return;
    shown = state.files.length + state.unread.length === 0 ? [] : await verify();
  } catch (error) {
    shown = [problem(reasonOf(error))];
  }
  if (mine !== latest) return;
  results.removeAttribute("aria-busy");
  results.replaceChildren(...shown);
}

const reasonOf = (error: unknown): string =>
  error instanceof VeenError
    ? error.full
    : `${error}; run \`veen verify\` on the files`;

async function verify(): Promise<HTMLElement[]> {
  const { hub, policy, unconfirmed } = choose(desk());
  const pin = hub === "" ? null : fromHex(hub);
  if (pin === undefined || (pin !== null && pin.length !== 32)) {
    throw new VeenError("A hub's id has 64 hexadecimal digits; the field above holds other text");
  }
  const readers = readerKeys(readerField.value, state.secrets);
  const report = await reportOn(state.files, { pin, policy: policy === "" ? null : policy });
  const verdicts = [...state.unread, ...report.verdicts];
  return resultsView({ ...report, verdicts }, readers, pin, unconfirmed);
}

function problem(text: string): HTMLElement {
  return el(
    "div",
    { class: "summary fails", role: "status" },
    el("span", { class: "mark" }, "✗"),
    el("div", {}, el("h2", {}, "This cannot be read."), el("p", {}, foreign(text))),
  );
}

function showFiles(): void {
  const unread = state.unread.map((each) => ({
    name: each.file,
    about: "not read",
    remove: () => (state.unread = state.unread.filter((other) => other !== each)),
  }));
  const files = state.files.map((file) => ({
    name: file.name,
    about: `${file.bytes.length.toLocaleString("en")} bytes`,
    remove: () => (state.files = state.files.filter((other) => other !== file)),
  }));
  const items = [...unread, ...files].map(fileItem);
  byId("files").replaceChildren(...items);
  byId("start").hidden = items.length > 0;
  byId("clear").hidden = items.length === 0 && state.proposed === NOTHING;
}

interface Item {
  readonly name: string;
  readonly about: string;
  readonly remove: () => void;
}

function fileItem({ name, about, remove }: Item, at: number): HTMLElement {
  const onclick = (): void => {
    remove();
    void run();
  };
  const label = { type: "button", class: "remove", "aria-label": `Remove file ${at + 1}`, onclick };
  return el(
    "li",
    {},
    foreign(name, "name"),
    el("span", { class: "quiet" }, ` ${about}`),
    el("button", label, "✕"),
  );
}

/** Show what came with the evidence beside the fields of the reader, and ask only for what would be used. */
function showProposal(): void {
  const { own, proposed } = desk();
  const names = (["hub", "policy"] as const).filter((name) => proposed[name] !== "" && proposed[name] !== own[name]);
  const items = names.map((name) => {
    const what = name === "hub" ? "A hub's id" : "A witness policy";
    const left = own[name] === "" ? "" : ", which is not used because you entered your own";
    const text = foreignLines(proposed[name]);
    return el("li", {}, `${what}${left}:`, name === "hub" ? el("code", {}, text) : el("pre", {}, text));
  });
  byId("proposed").replaceChildren(...items);
  byId("named").hidden = items.length === 0;
  byId("confirm").hidden = names.every((name) => own[name] !== "");
}

/** Keep what came with the evidence apart from what the reader entered. */
function take(given: Named): void {
  const { own, proposed, confirmed } = propose(desk(), given);
  state.proposed = proposed;
  confirmBox.checked = confirmed;
  hubField.value = own.hub;
  policyField.value = own.policy;
}

/** Add files; a page with evidence inside gives what is inside it, a policy is proposed to the reader. */
async function add(given: readonly File[], failed: readonly Verdict[] = []): Promise<void> {
  const found: EvidenceFile[] = [];
  const unread = [...failed];
  for (const file of given) {
    if (file.size > MAX_FILE_BYTES) {
      unread.push(notRead(file.name, `it has more than ${MAX_FILE_BYTES} bytes; use \`veen verify\``));
      continue;
    }
    let content: EvidenceFile;
    try {
      content = await read(file);
    } catch (error) {
      unread.push(notRead(file.name, `the browser says: ${error}`));
      continue;
    }
    const embedded = evidenceIn(content.bytes);
    const text = content.bytes.length < 65_536 ? fromUtf8(content.bytes) : undefined;
    if (embedded !== null) {
      found.push(...embedded.files);
      take({ hub: embedded.hub === null ? "" : hex(embedded.hub), policy: embedded.policy ?? "" });
    } else if (text !== undefined && /^[ \t]*quorum[ \t]/m.test(text)) take({ hub: "", policy: text });
    else found.push(content);
  }
  state.files = withFiles(state.files, found);
  state.unread = [...state.unread, ...unread];
}

const notRead = (name: string, why: string): Verdict =>
  verdict(name, "unknown", false, `this file was not read, and not verified: ${why}`);

async function addDropped(transfer: DataTransfer): Promise<void> {
  const { files, failed } = await filesIn(transfer);
  await add(
    files,
    failed.map(([name, why]) => notRead(name, why)),
  );
}

async function readSecrets(file: File | undefined): Promise<void> {
  state.secrets = null;
  if (file !== undefined) state.secrets = (await read(file)).bytes;
}

function listen(): void {
  const zone = byId("drop");
  const picker = byId<HTMLInputElement>("picker");
  byId("open").addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    const chosen = [...(picker.files ?? [])];
    void afterReading("the chosen files", () => add(chosen)).then(() => (picker.value = ""));
  });
  document.addEventListener("dragover", (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  document.addEventListener("dragleave", (event) => {
    if (event.relatedTarget === null) zone.classList.remove("over");
  });
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    const transfer = event.dataTransfer;
    if (transfer !== null) void afterReading("the dropped files", () => addDropped(transfer));
  });
  for (const field of [hubField, policyField, readerField, confirmBox]) {
    field.addEventListener("input", () => void run());
  }
  byId("secrets").addEventListener("change", (event) => {
    const [file] = (event.target as HTMLInputElement).files ?? [];
    void afterReading("the reader's secrets", () => readSecrets(file));
  });
  byId("refuse").addEventListener("click", () => {
    [state.proposed, confirmBox.checked] = [NOTHING, false];
    void run();
  });
  byId("clear").addEventListener("click", () => {
    [state.files, state.unread, state.proposed, confirmBox.checked] = [[], [], NOTHING, false];
    void run();
  });
}

byId("theme").replaceWith(themeButton());
listen();
const own = ownEvidence();
if (own !== null) {
  state.files = withFiles([], own.files);
  take({ hub: own.hub === null ? "" : hex(own.hub), policy: own.policy ?? "" });
}
void run();
