/** The first question: is this the hub that the person means? Nothing is verified before the answer. */
import { el, foreign } from "../../ui/dom.ts";
import type { App } from "../app.ts";
import type { Stop } from "../subject.ts";
import { badge, card, facts, field } from "../widgets.ts";

/** Split a hash into groups of eight digits, which two people can compare. */
export function grouped(hex: string): HTMLElement {
  const groups = hex.match(/.{1,8}/g) ?? [];
  return el("span", { class: "fingerprint mono" }, ...groups.map((group) => el("span", {}, group)));
}

export function confirm(app: App, root: HTMLElement): Stop {
  const slot = el("div");
  root.append(el("h1", {}, "Which hub is this?"),
    el("p", { class: "lead" },
      "This page believes nothing that the hub says of itself. Compare its hub_id with the one that its operator ",
      "gave you. From then on the page checks every signature against it."),
    slot);
  return app.trust.candidate.watch((candidate) => {
    if (candidate === undefined) {
      slot.replaceChildren(card("Waiting for the hub", el("p", { class: "quiet" }, "The hub has not answered yet.")));
      return;
    }
    if (candidate.problem !== undefined) {
      slot.replaceChildren(card("This hub's identity does not hold",
        badge("fails", "does not hold"), el("p", {}, foreign(candidate.problem))));
      return;
    }
    slot.replaceChildren(question(app, candidate.hubId));
  });
}

function question(app: App, hubId: string): HTMLElement {
  const expected = app.trust.expected;
  const matches = expected !== undefined && app.trust.isOf(expected);
  const isAnother = expected !== undefined && !matches;
  const remember = el("input", { type: "checkbox", id: "remember" });
  const error = el("p", { class: "error", role: "alert" });
  const pasted = el("input", {
    type: "text", id: "expected", autocomplete: "off", spellcheck: "false", class: "mono",
    placeholder: "64 hex digits", value: expected ?? "",
  });
  const form = el("form", {
    class: "confirm",
    onsubmit: (event) => {
      event.preventDefault();
      const text = pasted.value.replace(/\s/g, "").toLowerCase();
      if (!app.trust.isOf(text)) {
        error.textContent = text === "" ? "Paste the hub_id that you expect."
          : "This is another hub: the hub_id above is not the one that you expect. Do not go on.";
        return;
      }
      app.trust.confirm(hubId, remember.checked);
    },
  },
  el("h2", {}, "The hub says that it is"), grouped(hubId),
  matches ? el("p", {}, badge("holds", "same"), " as the hub_id that was pinned where this console was started.") : null,
  isAnother ? el("div", { class: "problem lie", role: "alert" }, el("strong", {}, "This is another hub"),
    el("p", {}, `The hub that was pinned where this console was started, or in this browser, is ${expected}. Do not go on.`)) : null,
  field("The hub_id or first hub_pk that you expect", pasted, "The operator prints it with: veen hub keys"),
  el("label", { class: "check" }, remember,
    " Remember this hub and its newest checkpoint in this browser, so that a rollback between two visits shows"),
  error,
  el("div", { class: "buttons" },
    el("button", { type: "submit", class: "primary" }, "Compare and open"),
    el("button", { type: "button", disabled: isAnother, onclick: () => app.trust.confirm(hubId, remember.checked) },
      "I have compared it myself")));
  return el("div", {}, el("section", { class: "panel card confirmation" }, form), el("div", { class: "served" },
    facts([["Served by", app.description.served_by === "hub" ? "the hub itself" : "veen console"], ["Hub", app.description.hub]])));
}
