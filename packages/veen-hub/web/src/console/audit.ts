/** What the console itself did: every request, verdict, pin and download, in memory only and bounded. */
import { Subject } from "./subject.ts";

export const MAX_EVENTS = 5_000;

export type EventKind = "request" | "check" | "trust" | "key" | "download";

export interface AuditEvent {
  /** Milliseconds since 1970, by this device's clock. */
  readonly at: number;
  readonly kind: EventKind;
  readonly text: string;
  readonly outcome: "ok" | "failed";
}

export class AuditLog {
  readonly events = new Subject<readonly AuditEvent[]>([]);
  dropped = 0;

  add(kind: EventKind, text: string, outcome: AuditEvent["outcome"] = "ok"): void {
    const events = [...this.events.value, { at: Date.now(), kind, text, outcome }];
    if (events.length > MAX_EVENTS) this.dropped += events.splice(0, events.length - MAX_EVENTS).length;
    this.events.set(events);
  }
}
