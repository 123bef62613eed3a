/** Prometheus' text format: the samples of one scrape, and rates between two of them. */

export type Samples = ReadonlyMap<string, number>;

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)/;

/** Parse a scrape; a key is the name, or the name and its labels as they are written. */
export function parseMetrics(text: string): Samples {
  const samples = new Map<string, number>();
  for (const line of text.split("\n")) {
    const found = line.startsWith("#") ? null : LINE.exec(line);
    if (found === null) continue;
    const [, name, labels, value] = found;
    samples.set(labels === undefined ? `${name}` : `${name}{${labels}}`, numberOf(value ?? ""));
  }
  return samples;
}

function numberOf(text: string): number {
  if (text === "+Inf") return Number.POSITIVE_INFINITY;
  return text === "-Inf" ? Number.NEGATIVE_INFINITY : Number(text);
}

/** Return the samples of one name by the value of its only label. */
export function byLabel(samples: Samples, name: string): ReadonlyMap<string, number> {
  const found = new Map<string, number>();
  for (const [key, value] of samples) {
    const match = key.startsWith(`${name}{`) ? /^\w+="((?:[^"\\]|\\.)*)"$/.exec(key.slice(name.length + 1, -1)) : null;
    if (match !== null) found.set((match[1] ?? "").replace(/\\(["\\])/g, "$1"), value);
  }
  return found;
}

export interface Scrape {
  readonly at: number;
  readonly samples: Samples;
}

/** Return a counter's increase per second between two scrapes; undefined if it was reset or is missing. */
export function perSecond(before: Scrape, now: Scrape, key: string): number | undefined {
  const [old, fresh] = [before.samples.get(key), now.samples.get(key)];
  const seconds = (now.at - before.at) / 1_000;
  if (old === undefined || fresh === undefined || fresh < old || seconds <= 0) return undefined;
  return (fresh - old) / seconds;
}
