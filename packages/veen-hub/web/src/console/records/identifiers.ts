/** Identifiers and streams of identities and wallets, and how they are derived (ID §3, §4; WAL §2, §3.1). */
import { Ht } from "../../verify/crypto/hash.ts";
import { type Bytes, utf8 } from "../../verify/wire/bytes.ts";

/** The id of a principal, from its root key (ID 3.2). */
export const principalId = (key: Bytes): Bytes => Ht("id/principal", key);
/** The id of an account: a principal in a realm (ID 3.3). */
export const ctxId = (principal: Bytes, realm: Bytes): Bytes => Ht("id/ctx", principal, realm);
/** The id of a device, from its signing key (ID 3.4). */
export const deviceId = (key: Bytes): Bytes => Ht("id/device", key);
/** The id of an organisation, from its root key (ID 3.5). */
export const orgId = (key: Bytes): Bytes => Ht("id/org", key);
/** The id of a group of an organisation (ID 3.6). */
export const groupId = (org: Bytes, name: string): Bytes => Ht("id/group", org, utf8(name));

/** The stream of a principal's own and device records (ID 4.1). */
export const principalStream = (key: Bytes): Bytes => Ht("id/stream/principal", key);
/** The stream of an account's profile and links (ID 4.1). */
export const ctxStream = (ctx: Bytes, realm: Bytes): Bytes => Ht("id/stream/ctx", ctx, realm);
/** The stream of an organisation's profile, groups and roles (ID 4.1). */
export const orgStream = (org: Bytes): Bytes => Ht("id/stream/org", org);
/** The stream of a realm's handles (ID 4.1). */
export const handleStream = (realm: Bytes): Bytes => Ht("id/stream/handle", realm);

/** The id of a wallet: of an account, in a currency (WAL 2.3). */
export const walletId = (realm: Bytes, ctx: Bytes, currency: string): Bytes => Ht("wallet/id", realm, ctx, utf8(currency));
/** The stream of a wallet (WAL 3.1). */
export const walletStream = (wallet: Bytes): Bytes => Ht("wallet/stream", wallet);
