/** Which hub and witness policy count: what the reader entered, or what came with the evidence. No DOM here. */

/** A hub's id in hex and the text of a witness policy; "" if there is none. */
export interface Named {
  readonly hub: string;
  readonly policy: string;
}

export const NOTHING: Named = { hub: "", policy: "" };

/** What the reader entered, what the sender proposes, and whether the reader has confirmed the proposal. */
export interface Desk {
  readonly own: Named;
  readonly proposed: Named;
  readonly confirmed: boolean;
}

/** What a run verifies against; `unconfirmed` lists what of it is only the sender's word. */
export interface Chosen extends Named {
  readonly unconfirmed: readonly (keyof Named)[];
}

const NAMES = ["hub", "policy"] as const;

/** Choose what to verify against: each value of the reader goes before that of the sender. */
export function choose({ own, proposed, confirmed }: Desk): Chosen {
  const unconfirmed = NAMES.filter((name) => !confirmed && own[name] === "" && proposed[name] !== "");
  const hub = own.hub || proposed.hub;
  // A policy can name the hub by its log lines; only a policy that the reader confirmed may do so.
  const isLeftOut = hub === "" && unconfirmed.includes("policy");
  return { hub, policy: isLeftOut ? "" : own.policy || proposed.policy, unconfirmed };
}

/** Take what came with evidence. A proposal that the reader confirmed before becomes the reader's own. */
export function propose({ own, proposed, confirmed }: Desk, given: Named): Desk {
  const next = merged(given, proposed);
  if (NAMES.every((name) => next[name] === proposed[name])) return { own, proposed, confirmed };
  return { own: confirmed ? merged(own, proposed) : own, proposed: next, confirmed: false };
}

const merged = (first: Named, second: Named): Named => ({
  hub: first.hub || second.hub,
  policy: first.policy || second.policy,
});
