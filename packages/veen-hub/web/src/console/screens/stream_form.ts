/** Parts of the screens that read a stream as records: the form for its name, and a line on how far it was read. */
import { el, foreign } from "../../ui/dom.ts";
import { plural } from "../../verify/wire/errors.ts";
import { count } from "../format.ts";
import type { StreamLogView } from "../records/stream_log.ts";
import { go, linkTo } from "../router.ts";
import { badge, field, said } from "../widgets.ts";

/** A form that opens a stream by its name on a screen. */
export function streamForm(screen: string, current: string, examples: string, what = "Stream"): HTMLElement {
  const name = el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: examples, "data-search": "",
    value: current });
  return el("form", {
    class: "toolbar",
    onsubmit: (event) => {
      event.preventDefault();
      if (name.value.trim() !== "") go(linkTo(screen, name.value.trim()));
    },
  }, field(what, name), el("button", { type: "submit" }, "Open"));
}

/** A form that opens several streams, whose names are separated by commas. */
export function namesForm(screen: string, current: readonly string[], examples: string): HTMLElement {
  const names = el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder: examples, "data-search": "",
    value: current.join(", ") });
  return el("form", {
    class: "toolbar",
    onsubmit: (event) => {
      event.preventDefault();
      const typed = names.value.split(",").map((each) => each.trim()).filter((each) => each !== "");
      if (typed.length > 0) go(linkTo(screen, ...typed));
    },
  }, field("Streams", names), el("button", { type: "submit" }, "Open"));
}

/** How many entries were read, verified and opened. */
export function progress(view: StreamLogView): HTMLElement {
  const { entries, isCaughtUp, isWhole, note } = view;
  const opened = entries.filter((each) => each.opened !== undefined).length;
  const text = `${plural(entries.length, "entry", "entries")} read and verified, ${count(opened)} opened with your keys.`;
  return el("p", { role: "status" },
    isCaughtUp ? said(true, "up to the newest that the hub shows") : badge("open", "reading"), " ", text,
    isWhole ? null : " The first entries are missing: the hub pruned them, or this tab dropped them.",
    note ? el("span", { class: "quiet" }, " ", foreign(note)) : null);
}
