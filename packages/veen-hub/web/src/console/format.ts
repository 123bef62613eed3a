/** Numbers, times and hashes as a person reads them. */

const NUMBER = new Intl.NumberFormat("en-US");
const RATE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });

export function count(n: number | bigint): string {
  return typeof n === "bigint" || Number.isFinite(n) ? NUMBER.format(n) : "∞";
}

export function rate(n: number): string {
  return RATE.format(n);
}

/** Shorten a hash for a column; the whole one belongs into a title or a detail. */
export function short(hash: string, digits = 8): string {
  return hash.length > digits ? `${hash.slice(0, digits)}…` : hash;
}

const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"] as const;

export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 1_024 && unit < SIZES.length - 1) {
    value /= 1_024;
    unit += 1;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${SIZES[unit]}`;
}

/** A span of time in its two largest units at most. */
export function span(seconds: number): string {
  if (!Number.isFinite(seconds)) return "never";
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3_600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3_600)} h ${Math.floor((whole % 3_600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3_600)} h`;
}

/** A time of the hub in UTC, to the second. */
export function utc(seconds: number): string {
  const date = new Date(seconds * 1_000);
  return Number.isNaN(date.getTime()) ? `${seconds}` : date.toISOString().slice(0, 19).replace("T", " ");
}

export function clock(seconds: number): string {
  return utc(seconds).slice(11);
}
