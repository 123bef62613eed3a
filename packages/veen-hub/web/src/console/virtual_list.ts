/**
 * A list that shows only the rows in view: 10,000 rows cost as much as 40.
 *
 * Every row has the same height. Rows are made by `render` when they come into view and thrown away when they leave
 * it; a row that is still in view keeps its element, so focus and selection survive an update.
 */
import { el } from "../ui/dom.ts";

const OVERSCAN = 8;
/** Browsers cannot lay out boxes of more than about 17 million pixels. */
const MAX_HEIGHT = 12_000_000;

export interface ListOptions<T> {
  readonly rowHeight: number;
  readonly label: string;
  /** Identity of a row: a row with the same key and the same version is not made again. */
  readonly keyOf: (item: T) => string;
  readonly render: (item: T, index: number) => HTMLElement;
  readonly onOpen: (item: T) => void;
}

export class VirtualList<T> {
  readonly root: HTMLElement;
  readonly #body: HTMLElement;
  readonly #options: ListOptions<T>;
  readonly #shown = new Map<string, HTMLElement>();
  #items: readonly T[] = [];
  #active = -1;
  #follows = true;
  #scheduled = false;
  readonly #observer: ResizeObserver;

  constructor(options: ListOptions<T>) {
    this.#options = options;
    this.#body = el("div", { class: "rows", role: "presentation" });
    this.root = el("div", {
      class: "virtual-list",
      role: "listbox",
      tabindex: 0,
      "aria-label": options.label,
      onscroll: () => this.#onScroll(),
      onkeydown: (event) => this.#onKey(event as KeyboardEvent),
    }, this.#body);
    this.#observer = new ResizeObserver(() => {
      if (this.#follows) this.root.scrollTop = this.#body.offsetHeight;
      this.#schedule();
    });
    this.#observer.observe(this.root);
  }

  /** Whether the end of the list stays in view while rows are added. */
  get follows(): boolean {
    return this.#follows;
  }

  set follows(value: boolean) {
    this.#follows = value;
    if (value) this.#scrollTo(this.#items.length - 1);
    this.#schedule();
  }

  close(): void {
    this.#observer.disconnect();
  }

  setItems(items: readonly T[]): void {
    const removed = this.#items.length > 0 && items.length > 0 ? this.#shift(items) : 0;
    this.#items = items;
    this.#active = Math.min(this.#active, items.length - 1);
    this.#body.style.height = `${Math.min(items.length * this.#options.rowHeight, MAX_HEIGHT)}px`;
    if (this.#follows) this.root.scrollTop = this.#body.offsetHeight;
    else if (removed > 0) this.root.scrollTop -= removed * this.#options.rowHeight;
    this.#schedule();
  }

  /** How many rows were taken away at the start, so that the rows in view stay where they are. */
  #shift(items: readonly T[]): number {
    const first = this.#options.keyOf(items[0] as T);
    if (this.#options.keyOf(this.#items[0] as T) === first) return 0;
    const at = this.#items.findIndex((item) => this.#options.keyOf(item) === first);
    return Math.max(0, at);
  }

  reveal(index: number): void {
    this.#follows = false;
    this.#active = index;
    this.#scrollTo(index);
    this.#schedule();
  }

  #scrollTo(index: number): void {
    const middle = this.root.clientHeight / 2;
    this.root.scrollTop = Math.max(0, index * this.#options.rowHeight - middle);
  }

  #onScroll(): void {
    const left = this.#body.offsetHeight - this.root.scrollTop - this.root.clientHeight;
    this.#follows = left < this.#options.rowHeight;
    this.#schedule();
  }

  #onKey(event: KeyboardEvent): void {
    const page = Math.max(1, Math.floor(this.root.clientHeight / this.#options.rowHeight) - 1);
    const last = this.#items.length - 1;
    const from = this.#active < 0 ? last + 1 : this.#active;
    const to = {
      ArrowDown: from + 1, ArrowUp: from - 1, PageDown: from + page, PageUp: from - page, Home: 0, End: last,
      j: from + 1, k: from - 1,
    }[event.key];
    if (to !== undefined && last >= 0) {
      event.preventDefault();
      this.#activate(Math.min(last, Math.max(0, to)));
    } else if (event.key === "Enter" && this.#items[this.#active] !== undefined) {
      event.preventDefault();
      this.#options.onOpen(this.#items[this.#active] as T);
    }
  }

  #activate(index: number): void {
    this.#active = index;
    this.#follows = index === this.#items.length - 1;
    const { rowHeight } = this.#options;
    const top = index * rowHeight;
    if (top < this.root.scrollTop) this.root.scrollTop = top;
    const bottom = top + rowHeight - this.root.clientHeight;
    if (bottom > this.root.scrollTop) this.root.scrollTop = bottom;
    this.#schedule();
  }

  #schedule(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => {
      this.#scheduled = false;
      this.#draw();
    });
  }

  #draw(): void {
    const { rowHeight, keyOf, render, onOpen } = this.#options;
    const first = Math.max(0, Math.floor(this.root.scrollTop / rowHeight) - OVERSCAN);
    const end = Math.min(this.#items.length, first + Math.ceil(this.root.clientHeight / rowHeight) + 2 * OVERSCAN);
    const wanted = new Map<string, number>();
    for (let index = first; index < end; index += 1) wanted.set(keyOf(this.#items[index] as T), index);
    for (const [key, element] of this.#shown) {
      if (wanted.has(key)) continue;
      element.remove();
      this.#shown.delete(key);
    }
    let active = "";
    for (const [key, index] of wanted) {
      const item = this.#items[index] as T;
      let element = this.#shown.get(key);
      if (element === undefined) {
        element = render(item, index);
        element.classList.add("row");
        element.setAttribute("role", "option");
        element.addEventListener("click", () => onOpen(item));
        this.#shown.set(key, element);
        this.#body.append(element);
      }
      element.id = `${this.#body.id || "row"}-${key.replace(/[^\w-]/g, "_")}`;
      element.style.transform = `translateY(${index * rowHeight}px)`;
      element.style.height = `${rowHeight}px`;
      const isActive = index === this.#active;
      element.classList.toggle("active", isActive);
      element.setAttribute("aria-selected", String(isActive));
      element.setAttribute("aria-posinset", String(index + 1));
      element.setAttribute("aria-setsize", String(this.#items.length));
      if (isActive) active = element.id;
    }
    if (active === "") this.root.removeAttribute("aria-activedescendant"); // the active row is out of view
    else this.root.setAttribute("aria-activedescendant", active);
  }
}
