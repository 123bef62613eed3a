/** Health, readiness and metrics: what the hub says of itself. None of it is signed, so none of it is verified. */
import { CallError, type HubCalls } from "./hub_calls.ts";
import { parseMetrics, perSecond, type Scrape } from "./metrics.ts";
import type { Problems } from "./problems.ts";
import { Subject } from "./subject.ts";

const EVERY_MS = 2_000;
const MAX_SCRAPES = 90;

export interface Vitals {
  readonly ready: boolean | undefined;
  /** Why the hub is not ready, or why that is not known. */
  readonly why: string;
  readonly scrapes: readonly Scrape[];
  readonly hasProbes: boolean;
}

export class VitalsWatch {
  readonly vitals: Subject<Vitals>;
  readonly #hub: HubCalls;
  readonly #problems: Problems;

  constructor(hub: HubCalls, problems: Problems, hasProbes: boolean) {
    this.#hub = hub;
    this.#problems = problems;
    this.vitals = new Subject<Vitals>({ ready: undefined, why: "not asked yet", scrapes: [], hasProbes });
  }

  start(): void {
    const round = () => void this.#round().finally(() => setTimeout(round, EVERY_MS));
    round();
  }

  async #round(): Promise<void> {
    await Promise.all([this.#alive(), this.vitals.value.hasProbes ? this.#probes() : undefined]);
  }

  async #alive(): Promise<void> {
    try {
      const { status } = await this.#hub.probe("/healthz");
      if (status === 200) this.#problems.recovered("connection");
      else this.#problems.report("connection", "", "the hub does not answer: what is shown is its last state", false);
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#problems.report("connection", "", `${error.message}: what is shown is its last state`, false);
    }
  }

  async #probes(): Promise<void> {
    const before = this.vitals.value;
    try {
      const [readiness, metrics] = await Promise.all([this.#hub.probe("/readyz"), this.#hub.probe("/metrics")]);
      if (metrics.status !== 200) throw new CallError(`/metrics: HTTP ${metrics.status}`, metrics.status, "");
      const scrape = { at: performance.now(), samples: parseMetrics(metrics.text) };
      const { ready, why } = readinessOf(readiness);
      this.#problems.recovered("probes");
      this.vitals.set({ ...before, ready, why, scrapes: [...before.scrapes, scrape].slice(-MAX_SCRAPES) });
    } catch (error) {
      if (!(error instanceof CallError)) throw error;
      this.#problems.report("probes", "", "readiness and metrics do not answer", false);
      this.vitals.set({ ...before, ready: undefined, why: "readiness does not answer" });
    }
  }
}

function readinessOf(answer: { status: number; text: string }): { ready: boolean; why: string } {
  let why = `HTTP ${answer.status}`;
  try {
    const said: unknown = JSON.parse(answer.text);
    if (typeof said === "object" && said !== null && "why" in said && typeof said.why === "string") why = said.why;
  } catch {
    // A proxy's page, not the hub's answer: the status is all that is known.
  }
  return { ready: answer.status === 200, why: answer.status === 200 ? "" : why };
}

/** The rate of a counter between the last two scrapes, and over all of them. */
export function ratesOf(scrapes: readonly Scrape[], key: string): readonly number[] {
  const rates: number[] = [];
  for (let at = 1; at < scrapes.length; at += 1) {
    rates.push(perSecond(scrapes[at - 1] as Scrape, scrapes[at] as Scrape, key) ?? 0);
  }
  return rates;
}
