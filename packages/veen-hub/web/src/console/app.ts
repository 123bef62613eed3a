/** The console's parts, which every screen uses. */
import type { AuditLog } from "./audit.ts";
import type { Description, HubCalls } from "./hub_calls.ts";
import type { HubLogWatch } from "./hub_log_watch.ts";
import type { LabelWatches } from "./label_watches.ts";
import type { Problems } from "./problems.ts";
import type { ReaderKeys } from "./reader_keys.ts";
import type { Stop } from "./subject.ts";
import type { TrustState } from "./trust_state.ts";
import type { VitalsWatch } from "./vitals.ts";

export interface App {
  readonly description: Description;
  readonly hub: HubCalls;
  readonly audit: AuditLog;
  readonly problems: Problems;
  readonly trust: TrustState;
  readonly vitals: VitalsWatch;
  readonly hubLog: HubLogWatch;
  readonly labels: LabelWatches;
  readonly keys: ReaderKeys;
  /** Say something to people who hear the page. */
  announce(text: string): void;
}

/** Draw a screen into `root`; the returned function ends its timers and subscriptions. */
export type Screen = (app: App, root: HTMLElement, parts: readonly string[]) => Stop;
