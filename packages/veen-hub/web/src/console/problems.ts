/** What does not hold: each problem names the part of the console it affects, its reason and its evidence. */
import type { AuditLog } from "./audit.ts";
import { Subject } from "./subject.ts";

/** A part of the console; problems of one part leave the others usable. */
export type Area = "connection" | "identity" | "hub log" | "streams" | "probes" | "tokens";

export interface Evidence {
  readonly name: string;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

export interface Problem {
  readonly area: Area;
  /** What inside the area is affected, such as a label in hex; empty for all of it. */
  readonly subject: string;
  readonly reason: string;
  readonly since: number;
  readonly evidence: readonly Evidence[];
  /** Whether the hub contradicts itself or its signatures; otherwise it only failed to answer. */
  readonly isLie: boolean;
}

export class Problems {
  readonly all = new Subject<readonly Problem[]>([]);
  readonly #audit: AuditLog;

  constructor(audit: AuditLog) {
    this.#audit = audit;
  }

  /** Record a problem. The first reason is kept: what follows is often only its consequence. */
  report(area: Area, subject: string, reason: string, isLie: boolean, evidence: readonly Evidence[] = []): void {
    const known = this.of(area, subject);
    if (known !== undefined && (known.isLie || !isLie)) return;
    this.#audit.add("check", `${area}${subject ? ` ${subject}` : ""}: ${reason}`, "failed");
    const problem = { area, subject, reason, since: Date.now(), evidence, isLie };
    this.all.set([...this.all.value.filter((each) => each !== known), problem]);
  }

  /** Forget that something did not answer, once it does; a lie stays. */
  recovered(area: Area, subject = ""): void {
    const known = this.of(area, subject);
    if (known === undefined || known.isLie) return;
    this.#audit.add("check", `${area}${subject ? ` ${subject}` : ""}: answers again`);
    this.all.set(this.all.value.filter((each) => each !== known));
  }

  of(area: Area, subject = ""): Problem | undefined {
    return this.all.value.find((each) => each.area === area && each.subject === subject);
  }

  in(area: Area): readonly Problem[] {
    return this.all.value.filter((each) => each.area === area);
  }
}
