/** Timestamps: UTC with milliseconds, always three decimal digits (query-api §3.2). */

const FORM = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.(\d{3}))?Z$/;
const MS_PER_400_YEARS = 146_097n * 86_400_000n;
const FIRST_LONG_YEAR_MS = 253_402_300_800_000n;

/** Return a timestamp as milliseconds since 1970; null if the text is none, or one before 1970. */
export function parseTimestamp(text: string): bigint | null {
  const found = FORM.exec(text);
  if (found === null) return null;
  const [year, month, day, hour, minute, second, fraction] = found
    .slice(1)
    .map((part) => Number(part ?? 0)) as [number, number, number, number, number, number, number];
  const made = new Date(Date.UTC(2000, month - 1, day, hour, minute, second));
  made.setUTCFullYear(year, month - 1, day);
  const shown = [
    made.getUTCFullYear(),
    made.getUTCMonth() + 1,
    made.getUTCDate(),
    made.getUTCHours(),
    made.getUTCMinutes(),
    made.getUTCSeconds(),
  ];
  if (![year, month, day, hour, minute, second].every((part, at) => part === shown[at])) return null;
  const milliseconds = made.getTime() + fraction;
  return milliseconds >= 0 ? BigInt(milliseconds) : null;
}

/** Return `YYYY-MM-DDTHH:MM:SS.mmmZ`; a year beyond 9999 has a plus sign. */
export function formatTimestamp(milliseconds: bigint): string {
  if (milliseconds < FIRST_LONG_YEAR_MS) return new Date(Number(milliseconds)).toISOString();
  const cycles = (milliseconds - FIRST_LONG_YEAR_MS) / MS_PER_400_YEARS + 1n;
  const moment = new Date(Number(milliseconds - cycles * MS_PER_400_YEARS));
  return `+${BigInt(moment.getUTCFullYear()) + 400n * cycles}${moment.toISOString().slice(4)}`;
}
