/** A button that goes through the colour schemes: as the system has it, light, dark. */

import { el } from "./dom.ts";

const THEMES = ["system", "light", "dark"] as const;

export function themeButton(): HTMLButtonElement {
  let at = 0;
  const made = el("button", { type: "button", class: "theme", onclick: () => show(at + 1) });
  const show = (next: number): void => {
    at = next % THEMES.length;
    const theme = THEMES[at] as (typeof THEMES)[number];
    if (theme === "system") delete document.documentElement.dataset["theme"];
    else document.documentElement.dataset["theme"] = theme;
    made.textContent = `Colours: ${theme}`;
  };
  show(0);
  return made;
}
