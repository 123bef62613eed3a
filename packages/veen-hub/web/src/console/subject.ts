/** A value that others watch: they are called at once and after every change. */

export type Stop = () => void;

export class Subject<T> {
  readonly #watchers = new Set<(value: T) => void>();
  #value: T;

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    this.#value = value;
    for (const watcher of [...this.#watchers]) watcher(value);
  }

  /** Call `watcher` now and after every change, until the returned function is called. */
  watch(watcher: (value: T) => void): Stop {
    this.#watchers.add(watcher);
    watcher(this.#value);
    return () => void this.#watchers.delete(watcher);
  }
}
