/** Key box: where a person gives a reader key; it stays in this tab's memory. */
import { el } from "../../ui/dom.ts";
import type { Bytes } from "../../verify/wire/bytes.ts";
import { plural, VeenError } from "../../verify/wire/errors.ts";
import type { App } from "../app.ts";
import { field } from "../widgets.ts";

export function keyBox(app: App): HTMLElement {
  const error = el("p", { class: "error", role: "alert" });
  const secret = el("input", { type: "password", autocomplete: "off", spellcheck: "false", placeholder: "64 hex digits" });
  const file = el("input", { type: "file" });
  const state = el("span", { class: "quiet" });
  const take = (bytes: Bytes) => {
    try {
      const added = app.keys.add(bytes);
      error.textContent = "";
      secret.value = "";
      app.announce(`${plural(added, "reader key")} taken`);
      state.textContent = held();
      box.open = false;
    } catch (found) {
      if (!(found instanceof VeenError)) throw found;
      error.textContent = `This is neither 64 hex digits nor a file of secrets: ${found.message}`;
    }
  };
  const held = () => {
    const count = app.keys.keys.value.length;
    return count === 0 ? "No key: messages stay sealed." : `${count} in this tab's memory.`;
  };
  file.addEventListener("change", () => {
    const [chosen] = file.files ?? [];
    void chosen?.arrayBuffer().then((buffer) => take(new Uint8Array(buffer)));
  });
  state.textContent = held();
  const box = el("details", { class: "keys" }, el("summary", {}, "Reader key ", state),
    el("form", {
      class: "toolbar",
      onsubmit: (event) => {
        event.preventDefault();
        take(new TextEncoder().encode(secret.value.trim()));
      },
    },
    field("Secret X25519 key", secret, "Stays in this tab's memory: never stored, never sent."),
    el("button", { type: "submit", class: "small" }, "Use"),
    field("Or a file of secrets", file),
    el("button", { type: "button", class: "small", onclick: () => {
      app.keys.forget();
      state.textContent = held();
    } }, "Forget")), error);
  return box;
}
