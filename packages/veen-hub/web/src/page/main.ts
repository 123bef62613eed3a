/** The verifier page: files come in, verdicts come out, and nothing leaves. */

import { type EvidenceFile, MAX_FILE_BYTES } from "../verify/evidence/recognize.ts";
import { type Report, reportOn } from "../verify/evidence/verify.ts";
import { type Bytes, fromHex, fromUtf8, hex } from "../verify/wire/bytes.ts";
import { VeenError } from "../verify/wire/errors.ts";
import { byId, el, foreign } from "../ui/dom.ts";
import { themeButton } from "../ui/theme.ts";
import { type Embedded, evidenceIn, ownEvidence } from "./embedded.ts";
import { filesIn, read } from "./files.ts";
import { readerKeys } from "./opening.ts";
import { resultsView } from "./results.ts";

interface State {
  files: EvidenceFile[];
  secrets: Bytes | null;
  /** The hub_id that came with the evidence, until the user confirms it. */
  named: string | null;
}

const state: State = { files: [], secrets: null, named: null };
const hubField = byId<HTMLInputElement>("hub");
const policyField = byId<HTMLTextAreaElement>("policy");
const readerField = byId<HTMLInputElement>("reader");
const confirmBox = byId<HTMLInputElement>("confirmed");
const results = byId("results");

let latest = 0;

/** Verify what is here, and show it; an older run that ends later is dropped. */
async function run(): Promise<void> {
  latest += 1;
  const mine = latest;
  showFiles();
  if (state.files.length === 0) {
    results.replaceChildren();
    return;
  }
  results.setAttribute("aria-busy", "true");
  let shown: HTMLElement[];
  try {
    shown = await verify();
  } catch (error) {
    if (!(error instanceof VeenError)) throw error;
    shown = [problem(error.full)];
  }
  if (mine !== latest) return;
  results.removeAttribute("aria-busy");
  results.replaceChildren(...shown);
}

async function verify(): Promise<HTMLElement[]> {
  const typed = hubField.value.trim().toLowerCase();
  const pin = typed === "" ? null : fromHex(typed);
  if (pin === undefined || (pin !== null && pin.length !== 32)) {
    throw new VeenError("A hub's id has 64 hexadecimal digits; the field above holds other text");
  }
  const policy = policyField.value.trim() === "" ? null : policyField.value;
  const readers = readerKeys(readerField.value, state.secrets);
  const report: Report = await reportOn(state.files, { pin, policy });
  const fromSender = state.named !== null && typed === state.named && !confirmBox.checked;
  return resultsView(report, readers, pin, fromSender);
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
  const items = state.files.map((file, at) =>
    el(
      "li",
      {},
      foreign(file.name, "name"),
      el("span", { class: "quiet" }, ` ${file.bytes.length.toLocaleString("en")} bytes`),
      el(
        "button",
        { type: "button", class: "remove", "aria-label": `Remove file ${at + 1}`, onclick: () => remove(at) },
        "✕",
      ),
    ),
  );
  byId("files").replaceChildren(...items);
  byId("start").hidden = state.files.length > 0;
  byId("clear").hidden = state.files.length === 0;
  byId("named").hidden = state.named === null;
}

function remove(at: number): void {
  state.files.splice(at, 1);
  void run();
}

/** Add files; a page with evidence inside gives what is inside it, a policy goes to its field. */
async function add(given: readonly File[]): Promise<void> {
  for (const file of given) {
    if (file.size > MAX_FILE_BYTES) {
      results.replaceChildren(
        problem(`${file.name} has more than ${MAX_FILE_BYTES} bytes; use \`veen verify\``),
      );
      return;
    }
    const { name, bytes } = await read(file);
    const embedded = evidenceIn(bytes);
    const text = bytes.length < 65_536 ? fromUtf8(bytes) : undefined;
    if (embedded !== null) take(embedded);
    else if (text !== undefined && /^[ \t]*quorum[ \t]/m.test(text)) policyField.value = text;
    else state.files = [...state.files.filter((held) => held.name !== name), { name, bytes }];
  }
  if (policyField.value !== "") byId<HTMLDetailsElement>("more").open = true;
  await run();
}

function take({ files, hub, policy }: Embedded): void {
  state.files = [...files];
  state.named = hub === null ? null : hex(hub);
  confirmBox.checked = false;
  if (hub !== null) hubField.value = hex(hub);
  if (policy !== null) policyField.value = policy;
}

function listen(): void {
  const zone = byId("drop");
  const picker = byId<HTMLInputElement>("picker");
  byId("open").addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    void add([...(picker.files ?? [])]).then(() => (picker.value = ""));
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
    if (event.dataTransfer !== null) void filesIn(event.dataTransfer).then(add);
  });
  for (const field of [hubField, policyField, readerField, confirmBox]) {
    field.addEventListener("input", () => void run());
  }
  byId<HTMLInputElement>("secrets").addEventListener("change", async (event) => {
    const [file] = (event.target as HTMLInputElement).files ?? [];
    state.secrets = file === undefined ? null : (await read(file)).bytes;
    await run();
  });
  byId("clear").addEventListener("click", () => {
    state.files = [];
    void run();
  });
}

byId("theme").replaceWith(themeButton());
listen();
const own = ownEvidence();
if (own !== null) take(own);
void run();
