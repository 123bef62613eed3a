/** Assertions that run in Node.js and in a browser. */

export function ok(isTrue: boolean, why: string): asserts isTrue {
  if (!isTrue) throw new Error(why);
}

export function same(found: unknown, wanted: unknown, what = "the value"): void {
  const [a, b] = [text(found), text(wanted)];
  ok(a === b, `${what} is ${a}, want ${b}`);
}

const text = (value: unknown): string =>
  JSON.stringify(value, (_key, each: unknown) =>
    typeof each === "bigint" ? String(each) : each instanceof Uint8Array ? [...each] : each) ?? "undefined";
