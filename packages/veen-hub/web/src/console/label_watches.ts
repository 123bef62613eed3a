/** The labels that are open: one at a time is followed, and stays open while its messages are looked at. */
import { hex } from "../verify/wire/bytes.ts";
import type { Bytes } from "../verify/wire/bytes.ts";
import type { HubCalls } from "./hub_calls.ts";
import type { HubLogWatch } from "./hub_log_watch.ts";
import { LabelWatch } from "./label_watch.ts";
import type { Problems } from "./problems.ts";
import { Subject } from "./subject.ts";
import type { TrustState } from "./trust_state.ts";

export class LabelWatches {
  /** Names that this page knows, by label in hex. */
  readonly names = new Subject<ReadonlyMap<string, string>>(new Map());
  readonly #hub: HubCalls;
  readonly #problems: Problems;
  readonly #trust: TrustState;
  readonly #hubLog: HubLogWatch;
  #open: LabelWatch | undefined;

  constructor(hub: HubCalls, problems: Problems, trust: TrustState, hubLog: HubLogWatch) {
    this.#hub = hub;
    this.#problems = problems;
    this.#trust = trust;
    this.#hubLog = hubLog;
  }

  /** Follow this label; the one that was followed before is closed. */
  open(label: Bytes, from?: number): LabelWatch {
    if (this.#open?.name === hex(label)) {
      if (from !== undefined) this.#open.start(from);
      return this.#open;
    }
    this.#open?.stop();
    this.#open = this.make(label);
    this.#open.start(from ?? 0);
    return this.#open;
  }

  /** Make a watch that is not the open one; who made it stops it. */
  make(label: Bytes): LabelWatch {
    return new LabelWatch(label, () => this.names.value.get(hex(label)), this.#hub, this.#problems, this.#trust, this.#hubLog);
  }

  /** Remember the name of labels. */
  name(name: string, ...labels: readonly Bytes[]): void {
    const fresh = labels.map(hex).filter((label) => this.names.value.get(label) !== name);
    if (fresh.length > 0) this.names.set(new Map([...this.names.value, ...fresh.map((label) => [label, name] as const)]));
  }
}
