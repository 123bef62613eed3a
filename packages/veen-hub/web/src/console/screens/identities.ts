/** Identities and wallets: the ids and streams that follow from a key, a realm and a currency (ID §3, §4; WAL §2, §3.1). */
import { el } from "../../ui/dom.ts";
import { type Bytes, fromHex, hex } from "../../verify/wire/bytes.ts";
import type { App } from "../app.ts";
import {
  ctxId, ctxStream, deviceId, groupId, handleStream, orgId, orgStream, principalId, principalStream, walletId, walletStream,
} from "../records/identifiers.ts";
import { realmId, revocationStream } from "../records/realm.ts";
import { findLabel } from "../records/find_stream.ts";
import { linkTo } from "../router.ts";
import type { Stop } from "../subject.ts";
import { badge, card, empty, field, hash } from "../widgets.ts";

interface Derived {
  readonly name: string;
  readonly value: Bytes;
  /** Whether the value names a stream. */
  readonly isStream: boolean;
}

export function identities(app: App, root: HTMLElement): Stop {
  const text = (placeholder: string) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", placeholder });
  const [key, realm, group, currency] = [text("64 hex digits"), text("shop, or 64 hex digits"), text("ops"), text("EUR")];
  key.dataset["search"] = "";
  const error = el("p", { class: "error", role: "alert" });
  const slot = el("div", { "aria-live": "polite" });
  const show = () => {
    const typed = key.value.trim().toLowerCase();
    const bytes = typed === "" ? undefined : fromHex(typed);
    error.textContent = typed !== "" && bytes?.length !== 32 ? "A key has 64 hexadecimal digits." : "";
    const found = derive(bytes?.length === 32 ? bytes : undefined, realm.value.trim(), group.value.trim(), currency.value.trim());
    slot.replaceChildren(found.length === 0 ? empty("Give a key, a realm, or both.") : table(app, found));
  };
  for (const input of [key, realm, group, currency]) input.addEventListener("input", show);
  root.append(
    el("p", {}, el("a", { href: linkTo("streams") }, "Streams")),
    el("h1", {}, "Identities and wallets"),
    el("p", { class: "lead" }, "The streams of principals, accounts, organisations and wallets have no names: their ids follow from keys. "
      + "This page derives them, and asks the hub nothing."),
    el("div", { class: "query-fields" }, field("Root key of a principal, a device or an organisation", key), field("Realm", realm),
      field("Group of the organisation", group), field("Currency of a wallet", currency)), error, slot);
  show();
  return app.hubLog.view.watch(show);
}

function derive(key: Bytes | undefined, realmText: string, group: string, currency: string): Derived[] {
  const realm = realmText === "" ? undefined : realmId(realmText);
  const found: [string, Bytes, boolean][] = [];
  if (key !== undefined) {
    found.push(["principal_id", principalId(key), false], ["device_id", deviceId(key), false], ["org_id", orgId(key), false],
      ["stream of the principal", principalStream(key), true], ["stream of the organisation", orgStream(orgId(key)), true]);
    if (group !== "") found.push([`group_id of ${group}`, groupId(orgId(key), group), false]);
  }
  if (realm !== undefined) {
    found.push(["realm_id", realm, false], ["stream of the realm's handles", handleStream(realm), true],
      ["stream of the realm's revocations", revocationStream(realm), true]);
  }
  if (key !== undefined && realm !== undefined) {
    const ctx = ctxId(key, realm);
    found.push(["ctx_id of the account", ctx, false], ["stream of the account", ctxStream(ctx, realm), true]);
    if (/^[\x21-\x7e]+$/.test(currency)) {
      const wallet = walletId(realm, ctx, currency);
      found.push([`wallet_id in ${currency}`, wallet, false], ["stream of the wallet", walletStream(wallet), true]);
    }
  }
  return found.map(([name, value, isStream]) => ({ name, value, isStream }));
}

function table(app: App, found: readonly Derived[]): HTMLElement {
  const heads = app.hubLog.view.value.labels;
  return card("Ids and streams", el("div", { class: "table-scroll", role: "region", "aria-label": "Ids and streams", tabindex: 0 }, el("table", {},
    el("thead", {}, el("tr", {}, ...["name", "id", "at this hub"].map((each) => el("th", { scope: "col" }, each)))),
    el("tbody", {}, ...found.map(({ name, value, isStream }) => {
      const id = hex(value);
      const label = isStream ? findLabel(app, id) : undefined;
      const place = label === undefined ? "" : heads.has(hex(label)) ? el("span", {}, el("a", { href: linkTo("streams", hex(label)) }, "Rows"), " ",
        el("a", { href: linkTo("operations", id) }, "Records")) : badge("open", "no entries in the hub log");
      return el("tr", {}, el("td", {}, name), el("td", {}, hash(id, 16)), el("td", {}, place));
    })))));
}
