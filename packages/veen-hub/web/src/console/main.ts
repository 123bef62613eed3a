/** The console: one page that reads a hub and verifies what it says. */
import { byId, el } from "../ui/dom.ts";
import type { App, Screen } from "./app.ts";
import { AuditLog } from "./audit.ts";
import { type Description, HubCalls } from "./hub_calls.ts";
import { HubLogWatch } from "./hub_log_watch.ts";
import { LabelWatches } from "./label_watches.ts";
import { type Area, Problems } from "./problems.ts";
import { ReaderKeys } from "./reader_keys.ts";
import { go, linkTo, type Route, watchRoute } from "./router.ts";
import { audit } from "./screens/audit.ts";
import { bridges } from "./screens/bridges.ts";
import { capabilities } from "./screens/capabilities.ts";
import { confirm } from "./screens/confirm.ts";
import { identities } from "./screens/identities.ts";
import { message } from "./screens/message.ts";
import { operations } from "./screens/operations.ts";
import { overview } from "./screens/overview.ts";
import { records } from "./screens/records.ts";
import { replicas } from "./screens/replicas.ts";
import { revocations } from "./screens/revocations.ts";
import { streams } from "./screens/streams.ts";
import { trust } from "./screens/trust.ts";
import type { Stop } from "./subject.ts";
import { TrustState } from "./trust_state.ts";
import { VitalsWatch } from "./vitals.ts";
import { badge, problemPanel, type Verdict } from "./widgets.ts";

interface Entry {
  readonly title: string;
  readonly screen: Screen;
  /** The areas whose problems this screen shows. */
  readonly areas: readonly Area[];
  /** The key that opens it; none for a screen that is reached from another. */
  readonly key?: string;
  /** The screen from which it is reached, if it has no key. */
  readonly from?: string;
}

const SCREENS: Readonly<Record<string, Entry>> = {
  overview: { title: "Overview", screen: overview, areas: ["connection", "probes", "identity", "hub log"], key: "1" },
  streams: { title: "Streams", screen: streams, areas: ["connection", "streams", "identity"], key: "2" },
  message: { title: "Message", screen: message, areas: ["connection", "streams", "identity"], from: "streams" },
  identities: { title: "Identities and wallets", screen: identities, areas: ["connection", "identity"], from: "streams" },
  trust: { title: "Trust", screen: trust, areas: ["identity", "hub log", "connection"], key: "3" },
  capabilities: { title: "Capabilities", screen: capabilities, areas: ["tokens", "connection", "identity"], key: "4" },
  revocations: { title: "Revocations", screen: revocations, areas: ["streams", "connection", "identity"], from: "capabilities" },
  replicas: { title: "Replicas", screen: replicas, areas: ["probes", "connection", "identity"], key: "5" },
  bridges: { title: "Bridges", screen: bridges, areas: ["streams", "connection", "identity"], key: "6" },
  records: { title: "Records", screen: records, areas: ["streams", "connection", "identity"], key: "7" },
  operations: { title: "Operations", screen: operations, areas: ["streams", "connection", "identity"], key: "8" },
  audit: { title: "Audit", screen: audit, areas: [], key: "9" },
};

function makeApp(description: Description, log: AuditLog, hub: HubCalls): App {
  const problems = new Problems(log);
  const trustState = new TrustState(hub, problems, log, description.pinned);
  const hubLog = new HubLogWatch(hub, problems, trustState, description.witness_policy);
  const keys = new ReaderKeys(log);
  return {
    description, hub, audit: log, problems, trust: trustState, hubLog, keys,
    vitals: new VitalsWatch(hub, problems, description.has_probes),
    labels: new LabelWatches(hub, problems, trustState, hubLog),
    announce: (text) => {
      byId("announcements").textContent = text;
    },
  };
}

/** Whether single characters are shortcuts; a person who dictates or types by accident can turn them off (WCAG 2.1.4). */
let singleKeys = true;

function drawTop(app: App): void {
  const theme = el("button", { type: "button", class: "small", onclick: () => toggleTheme() }, "Light or dark");
  const name = el("span", { class: "hub-name" });
  const keys = el("button", { type: "button", class: "small keys-button", "aria-pressed": "true",
    title: "1 to 9 open screens, / goes to the search field, j and k to the next and previous message",
    onclick: () => {
      singleKeys = !singleKeys;
      keys.setAttribute("aria-pressed", String(singleKeys));
      keys.textContent = singleKeys ? "Keys: on" : "Keys: off";
    } }, "Keys: on");
  byId("top").replaceChildren(el("a", { class: "brand", href: linkTo("overview") }, "VEEN console"), name, keys, theme);
  const show = () => {
    const hub = app.trust.hub.value;
    const silent = app.problems.of("connection") !== undefined;
    const lies = app.problems.all.value.filter((each) => each.isLie).length;
    const state: Verdict = lies > 0 ? "fails" : silent || hub === undefined ? "open" : "holds";
    const text = lies > 0 ? `${lies} failed` : silent ? "no answer" : hub === undefined ? "not confirmed" : "verified";
    name.replaceChildren(
      el("span", { class: "mono" }, hub === undefined ? "" : `${hub.hubId.slice(0, 12)}…`),
      badge(state, text));
  };
  app.trust.hub.watch(show);
  app.problems.all.watch(show);
}

function toggleTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset["theme"] === "dark"
    || (root.dataset["theme"] === undefined && matchMedia("(prefers-color-scheme: dark)").matches);
  root.dataset["theme"] = dark ? "light" : "dark";
}

/** The screen that a link names; an unknown name is the overview. */
const nameOf = ({ screen }: Route): string => (Object.hasOwn(SCREENS, screen) ? screen : "overview");
const entryOf = (name: string): Entry => SCREENS[name] as Entry;

function drawNav(app: App, route: Route): void {
  const here = nameOf(route);
  const links = Object.entries(SCREENS).filter(([, entry]) => entry.key !== undefined).map(([name, entry]) => {
    const problems = entry.areas.flatMap((area) => app.problems.in(area));
    const isFailing = problems.some((each) => each.isLie);
    const mark = isFailing ? dot("dot", "!", "something here does not hold")
      : problems.length > 0 ? dot("dot silent", "?", "something here does not answer") : null;
    const isHere = here === name || entryOf(here).from === name;
    return el("a", { href: linkTo(name), "aria-current": isHere ? "page" : null, class: isFailing ? "failing" : null },
      entry.title, mark);
  });
  byId("nav").replaceChildren(...links);
}

function dot(kind: string, sign: string, meaning: string): HTMLElement {
  return el("span", { class: kind, title: meaning }, el("span", { "aria-hidden": "true" }, sign), el("span", { class: "visually-hidden" }, ` ${meaning}`));
}

function run(app: App): void {
  const route = watchRoute();
  let stop: Stop = () => undefined;
  let shown = "";
  const draw = () => {
    const [screen, { parts }] = [nameOf(route.value), route.value];
    const isConfirmed = app.trust.hub.value !== undefined;
    document.body.classList.toggle("nav-hidden", !isConfirmed);
    const entry = entryOf(screen);
    const key = `${isConfirmed} ${screen} ${parts.join("/")}`;
    drawNav(app, route.value);
    if (key === shown) return;
    shown = key;
    stop();
    const banner = el("div", { class: "problems" });
    const root = el("div", { class: `screen ${screen}` });
    byId("main").replaceChildren(banner, root);
    const stopScreen = isConfirmed ? entry.screen(app, root, parts) : confirm(app, root);
    const stopBanner = app.problems.all.watch((all) => {
      const areas = isConfirmed ? entry.areas : ["connection", "identity"];
      const mine = all.filter((each) => areas.includes(each.area));
      banner.replaceChildren(...mine.map((each) => problemPanel(app.audit, each)));
    });
    stop = () => {
      stopScreen();
      stopBanner();
    };
    if (isConfirmed) byId("main").focus({ preventScroll: true });
    document.title = `${isConfirmed ? entry.title : "Which hub?"} · VEEN console`;
    app.announce(isConfirmed ? entry.title : "Which hub is this?");
  };
  route.watch(draw);
  app.trust.hub.watch(draw);
  app.problems.all.watch(() => drawNav(app, route.value));
  addEventListener("keydown", (event) => onKey(event));
}

function onKey(event: KeyboardEvent): void {
  const target = event.target as HTMLElement | null;
  const isTyping = target?.closest("input, textarea, select") !== null && target !== null;
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && isTyping) target?.blur();
  if (isTyping || !singleKeys) return;
  const found = Object.entries(SCREENS).find(([, entry]) => entry.key === event.key);
  if (found !== undefined) go(linkTo(found[0]));
  if (target?.closest(".virtual-list") === null) document.querySelector<HTMLElement>(`main [data-key="${CSS.escape(event.key)}"]`)?.click();
  if (event.key === "/") {
    const search = document.querySelector<HTMLInputElement>("input[data-search]");
    if (search !== null) {
      event.preventDefault();
      search.focus();
    }
  }
}

async function main(): Promise<void> {
  const log = new AuditLog();
  const hub = new HubCalls(log);
  const app = makeApp(await hub.description(), log, hub);
  drawTop(app);
  run(app);
  app.trust.start();
  app.vitals.start();
  app.hubLog.start();
}

main().catch((error: unknown) => {
  const text = error instanceof Error ? error.message : String(error);
  byId("main").replaceChildren(el("h1", {}, "The console cannot start"), el("p", { role: "alert" }, text));
});
