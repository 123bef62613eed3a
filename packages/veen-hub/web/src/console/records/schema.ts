// Made by schema.py from the declarations of veen-overlays; do not edit.
import type { AttachmentRef, ObjectSchema } from "../../verify/wire/schema.ts";

export interface RecordSchema extends ObjectSchema {
  /** The schema id in hex: `payload_hdr.schema` of its messages. */
  readonly id: string;
  /** The overlays that fold it. */
  readonly overlays: readonly string[];
}
type Bytes = Uint8Array<ArrayBuffer>;

export interface TargetRange {
  readonly stream_id: Bytes;
  readonly label: Bytes;
  readonly from_seq: bigint;
  readonly to_seq: bigint;
}
export interface OriginLeaf {
  readonly profile_id: Bytes;
  readonly ct_hash: Bytes;
  readonly client_id: Bytes;
  readonly client_seq: bigint;
}
export interface Endpoint {
  readonly kind: string;
  readonly url: string;
}
export interface AuthPolicy {
  readonly mode: "cap_token" | "mtls" | "none" | "other";
  readonly details: unknown | null;
}
export interface Operator {
  readonly org: string | null;
  readonly contact: string | null;
}
export interface QueryError {
  readonly code: string;
  readonly detail: string | null;
}
export interface DeviceFlags {
  readonly disabled: boolean | null;
}
export interface ErrorBody {
  readonly code: string;
  readonly detail: string | null;
}
/** The fields of each record, by its name. */
export interface Records {
  "bridge.exported.v1": { readonly bundle_id: Bytes; readonly prev_bundle_id: Bytes; readonly parts_hash: Bytes; readonly source_hub_id: Bytes; readonly stream_id: Bytes; readonly stream: string | null; readonly label: Bytes; readonly from_seq: bigint; readonly to_seq: bigint; readonly events: bigint; readonly root_before: Bytes; readonly peaks_before: readonly (Bytes)[]; readonly root_after: Bytes; readonly checkpoint: Bytes; readonly ts: bigint; readonly bridge_id: Bytes; readonly operator: string; };
  "bridge.imported.v1": { readonly bundle_id: Bytes; readonly prev_bundle_id: Bytes; readonly source_hub_id: Bytes; readonly source_bridge_id: Bytes; readonly source_stream_id: Bytes; readonly source_label: Bytes; readonly from_seq: bigint; readonly to_seq: bigint; readonly events: bigint; readonly root_before: Bytes; readonly peaks_before: readonly (Bytes)[]; readonly root_after: Bytes; readonly mode: "wrap" | "reseal"; readonly targets: readonly (TargetRange)[]; readonly skipped_from: bigint | null; readonly import_time: bigint; readonly bridge_id: Bytes; readonly operator: string; };
  "bridge.import.failed.v1": { readonly bundle_id: Bytes | null; readonly position: bigint; readonly code: string; readonly reason: string; readonly import_time: bigint; readonly bridge_id: Bytes; readonly operator: string; };
  "bridge.import.gap.v1": { readonly bundle_id: Bytes; readonly missing_bundle_id: Bytes; readonly skipped_from: bigint; readonly import_time: bigint; readonly bridge_id: Bytes; readonly operator: string; };
  "bridge.import.mapping.v1": { readonly source_hub_id: Bytes; readonly source_stream_id: Bytes; readonly source_stream: string; readonly target_stream_id: Bytes; readonly target_stream: string; readonly import_time: bigint; readonly bridge_id: Bytes; readonly operator: string; };
  "bridge.import.v1": { readonly bundle_id: Bytes; readonly source_hub_id: Bytes; readonly source_label: Bytes; readonly source_stream_seq: bigint; readonly origin_receipt: Bytes; readonly origin_msg: Bytes | null; readonly import_time: bigint; readonly bridge_id: Bytes; readonly origin_leaf: OriginLeaf | null; };
  "veen.attached.v1": { readonly ver: 1n; readonly schema: Bytes; readonly body: Bytes; readonly attachments: readonly (AttachmentRef)[]; };
  "veen.fed.authority.v1": { readonly realm_id: Bytes; readonly stream_id: Bytes; readonly primary_hub: Bytes; readonly replica_hubs: readonly (Bytes)[]; readonly policy: "single-primary" | "multi-primary"; readonly ts: bigint; readonly ttl: bigint; };
  "veen.fed.handover.v1": { readonly realm_id: Bytes; readonly identity: Bytes; readonly handover: Bytes; };
  "veen.revocation.v1": { readonly kind: "client-id" | "auth-ref" | "cap-token"; readonly target: Bytes; readonly reason: string | null; readonly ts: bigint; readonly ttl: bigint | null; };
  "veen.label.class.v1": { readonly label: Bytes; readonly class_: string; readonly sensitivity: string | null; readonly retention_hint: bigint | null; };
  "veen.meta.schema.v1": { readonly schema_id_: Bytes; readonly name: string; readonly version: string; readonly doc_url: string | null; readonly owner: Bytes | null; readonly ts: bigint; };
  "crdt.lww.v1": { readonly key: Bytes; readonly ts: bigint; readonly value: Bytes; };
  "crdt.orset.v1": { readonly id: Bytes; readonly elem: Bytes; } | { readonly tomb: readonly (Bytes)[]; };
  "crdt.gcnt.v1": { readonly shard: Bytes; readonly delta: bigint; };
  "disc.hub.advertise.v1": { readonly hub_id: Bytes; readonly hub_pk: Bytes; readonly profile_id: Bytes; readonly region: string; readonly tags: readonly (string)[]; readonly endpoints: readonly (Endpoint)[]; readonly overlays: readonly (Bytes)[]; readonly ttl_sec: bigint; readonly version: string; readonly expires_at: bigint | null; };
  "disc.overlay.advertise.v1": { readonly overlay_id: Bytes; readonly name: string; readonly version: string; readonly schemas: readonly (Bytes)[]; readonly docs_url: string | null; readonly tags: readonly (string)[]; readonly ttl_sec: bigint; readonly expires_at: bigint | null; };
  "disc.service.advertise.v1": { readonly service_id: Bytes; readonly name: string; readonly overlay_id: Bytes; readonly methods: readonly (string)[]; readonly stream_ids: readonly (Bytes)[]; readonly regions: readonly (string)[]; readonly required_caps: readonly (string)[]; readonly auth_policy: AuthPolicy | null; readonly operator: Operator | null; readonly tags: readonly (string)[]; readonly ttl_sec: bigint; readonly expires_at: bigint | null; };
  "disc.hub.retire.v1": { readonly hub_id: Bytes; readonly reason: string | null; };
  "disc.overlay.retire.v1": { readonly overlay_id: Bytes; readonly reason: string | null; };
  "disc.service.retire.v1": { readonly service_id: Bytes; readonly reason: string | null; };
  "disc.publishers.v1": { readonly kind: "overlay" | "service"; readonly id: Bytes; readonly publishers: readonly (Bytes)[]; };
  "disc.hub.identity.v1": { readonly hub_id: Bytes; readonly identity: Bytes; readonly sig: Bytes; };
  "record.continuity.v1": { readonly principal_id: Bytes; readonly client_id: Bytes; readonly sig: Bytes; };
  "disc.query.v1": { readonly kind: string; readonly filter: unknown; readonly limit: bigint | null; readonly offset: bigint | null; };
  "disc.query.res.v1": { readonly ok: boolean; readonly results: readonly (unknown)[]; readonly more: boolean; readonly error: QueryError | null; };
  "federation.mirror.v1": { readonly source_hub_identifier: string; readonly source_label: Bytes; readonly source_stream_seq: bigint; readonly source_leaf_hash: Bytes; readonly source_receipt_root: Bytes; readonly target_label: Bytes; readonly mirror_time: bigint | null; readonly metadata: unknown | null; };
  "id.principal.v1": { readonly principal_pk: Bytes; readonly created_at: bigint; readonly info: unknown | null; };
  "id.device.v1": { readonly principal_pk: Bytes; readonly device_id: Bytes; readonly device_pk: Bytes; readonly dh_pk: Bytes; readonly label: string | null; readonly created_at: bigint; readonly expires_at: bigint | null; readonly flags: DeviceFlags | null; };
  "id.ctx.profile.v1": { readonly ctx_id: Bytes; readonly realm_id: Bytes; readonly display_name: string | null; readonly avatar_coid: Bytes | null; readonly prefs: unknown | null; readonly updated_at: bigint; };
  "id.org.profile.v1": { readonly org_id: Bytes; readonly display_name: string | null; readonly metadata: unknown | null; readonly created_at: bigint; readonly updated_at: bigint; };
  "id.group.v1": { readonly org_id: Bytes; readonly realm_id: Bytes | null; readonly group_id: Bytes; readonly name: string; readonly members_add: readonly (Bytes)[] | null; readonly members_remove: readonly (Bytes)[] | null; readonly updated_at: bigint; };
  "id.role.v1": { readonly org_id: Bytes; readonly realm_id: Bytes | null; readonly role: string; readonly targets_ctx: readonly (Bytes)[] | null; readonly targets_group: readonly (Bytes)[] | null; readonly ts: bigint; };
  "id.handlemap.v1": { readonly realm_id: Bytes; readonly handle: string; readonly target_type: "ctx" | "org"; readonly target_id: Bytes; readonly ts: bigint; };
  "id.external.v1": { readonly realm_id: Bytes; readonly ctx_id: Bytes | null; readonly org_id: Bytes | null; readonly provider: string; readonly external_sub: string; readonly attributes: unknown | null; readonly ts: bigint; };
  "id.revoke.v1": { readonly principal_pk: Bytes | null; readonly org_id: Bytes | null; readonly device_id: Bytes | null; readonly revoked_auth_ref: Bytes | null; readonly realm_id: Bytes | null; readonly ctx_id: Bytes | null; readonly reason: string | null; readonly ts: bigint; };
  "id.recovery.policy.v1": { readonly target_identity: Bytes; readonly guardians: readonly (Bytes)[]; readonly threshold: bigint; readonly executors: readonly (Bytes)[] | null; readonly updated_at: bigint; };
  "recovery.request.v1": { readonly target_identity: Bytes; readonly requested_new_identity: Bytes; readonly reason: string | null; readonly request_time: bigint | null; readonly metadata: unknown | null; };
  "recovery.approval.v1": { readonly target_identity: Bytes; readonly requested_new_identity: Bytes; readonly approver_identity: Bytes; readonly policy_group_id: Bytes | null; readonly decision: string; readonly decision_time: bigint | null; readonly parent_operation_id: Bytes | null; readonly metadata: unknown | null; };
  "recovery.execution.v1": { readonly target_identity: Bytes; readonly new_identity: Bytes; readonly applied_time: bigint | null; readonly approval_references: readonly (Bytes)[]; readonly metadata: unknown | null; };
  "kv.put.v1": { readonly key: Bytes; readonly value: Bytes; };
  "kv.delete.v1": { readonly key: Bytes; };
  "paid.operation.v1": { readonly operation_type: string; readonly operation_args: unknown; readonly payer_account: Bytes; readonly payee_account: Bytes; readonly amount: bigint; readonly currency_code: string | null; readonly operation_reference: Bytes | null; readonly parent_operation_id: Bytes | null; readonly ttl_seconds: bigint | null; readonly metadata: unknown | null; };
  "access.grant.v1": { readonly subject_identity: Bytes; readonly subject_label: string | null; readonly allowed_stream_ids: readonly (Bytes)[]; readonly expiry_time: bigint; readonly maximum_rate_per_second: bigint | null; readonly maximum_burst: bigint | null; readonly maximum_amount: bigint | null; readonly currency_code: string | null; readonly reason: string | null; readonly parent_operation_id: Bytes | null; };
  "access.revoke.v1": { readonly subject_identity: Bytes; readonly target_capability_reference: Bytes | null; readonly reason: string | null; readonly parent_operation_id: Bytes | null; };
  "delegated.execution.v1": { readonly principal_identity: Bytes; readonly agent_identity: Bytes; readonly delegation_chain: readonly (Bytes)[]; readonly operation_schema: Bytes; readonly operation_body: unknown; readonly parent_operation_id: Bytes | null; readonly metadata: unknown | null; };
  "operation.domain.v1": { readonly authorities: readonly (Bytes)[]; readonly negative_balances: boolean; readonly grants_required: boolean; readonly currency_code: string | null; };
  "wallet.open.v1": { readonly wallet_id: Bytes; readonly realm_id: Bytes; readonly ctx_id: Bytes; readonly currency: string; readonly created_at: bigint; };
  "wallet.close.v1": { readonly wallet_id: Bytes; readonly ts: bigint; };
  "wallet.deposit.v1": { readonly wallet_id: Bytes; readonly amount: bigint; readonly ts: bigint; readonly ref: Bytes | null; };
  "wallet.withdraw.v1": { readonly wallet_id: Bytes; readonly amount: bigint; readonly ts: bigint; readonly ref: Bytes | null; };
  "wallet.transfer.v1": { readonly wallet_id: Bytes; readonly to_wallet_id: Bytes; readonly amount: bigint; readonly ts: bigint; readonly transfer_id: Bytes; readonly metadata: unknown | null; };
  "wallet.adjust.v1": { readonly wallet_id: Bytes; readonly delta: bigint; readonly ts: bigint; readonly reason: string; readonly ref: Bytes | null; };
  "wallet.limit.v1": { readonly wallet_id: Bytes; readonly daily_limit: bigint | null; readonly ts: bigint; };
  "wallet.freeze.v1": { readonly wallet_id: Bytes; readonly ts: bigint; readonly reason: string | null; };
  "wallet.unfreeze.v1": { readonly wallet_id: Bytes; readonly ts: bigint; readonly reason: string | null; };
  "operation.claim.v1": { readonly operation_id: Bytes; };
  "operation.result.v1": { readonly operation_id: Bytes; readonly outcome: "done" | "failed" | "expired"; readonly result: unknown | null; readonly reason: string | null; };
  "agreement.definition.v1": { readonly agreement_id: Bytes; readonly version: bigint; readonly terms_hash: Bytes; readonly terms_attachment_root: Bytes | null; readonly parties: readonly (Bytes)[]; readonly effective_time: bigint | null; readonly expiry_time: bigint | null; readonly metadata: unknown | null; };
  "agreement.confirmation.v1": { readonly agreement_id: Bytes; readonly version: bigint; readonly party_identity: Bytes; readonly decision: string; readonly decision_time: bigint | null; readonly parent_operation_id: Bytes | null; readonly metadata: unknown | null; };
  "data.publication.v1": { readonly publication_id: Bytes; readonly publisher_identity: Bytes; readonly content_root: Bytes; readonly content_class: string; readonly version: string; readonly labels: readonly (string)[] | null; readonly source_uri: string | null; readonly metadata: unknown | null; };
  "queue.put.v1": { readonly body: Bytes; };
  "queue.take.v1": { readonly job: Bytes; readonly worker: Bytes; readonly ts: bigint; readonly lease_sec: bigint; };
  "queue.ack.v1": { readonly job: Bytes; readonly worker: Bytes; readonly ts: bigint; };
  "record.event.v1": { readonly subject_id: string; readonly principal_id: Bytes; readonly event_type: string; readonly event_time: bigint; readonly origin: string; readonly payload: unknown; };
  "record.migration.v1": { readonly from_: readonly (string)[]; readonly to: readonly (string)[]; readonly reason: string; readonly at: bigint; };
  "query.audit.v1": { readonly requester_identity: Bytes; readonly resource_identifier: string; readonly resource_class: string; readonly query_parameters: unknown | null; readonly purpose_code: string | null; readonly result_digest: Bytes | null; readonly request_time: bigint | null; readonly metadata: unknown | null; };
  "rpc.v1": { readonly method: string; readonly args: unknown; readonly timeout_ms: bigint | null; readonly reply_to: Bytes | null; readonly idem: bigint | null; };
  "rpc.res.v1": { readonly ok: boolean; readonly result: unknown | null; readonly error: ErrorBody | null; };
  "rpc.server.v1": { readonly principal_id: Bytes; readonly client_id: Bytes; readonly methods: readonly (string)[]; readonly lease_sec: bigint; readonly sig: Bytes; readonly replaces: Bytes | null; };
  "rpc.take.v1": { readonly call: Bytes; };
  "state.checkpoint.v1": { readonly state_id: Bytes; readonly upto_stream_seq: bigint; readonly mmr_root: Bytes; readonly state_hash: Bytes; readonly state_class: string; readonly metadata: unknown | null; };
}
export type RecordName = keyof Records;

export const PARTS: Readonly<Record<string, ObjectSchema>> = {
  TargetRange: { name: "bridge.imported.v1 target", section: "products-spec-1 4.6",
    layout: "map", fields: [
    ["stream_id", "stream_id", ["fixed", "StreamId", 32], false, false],
    ["label", "label", ["fixed", "Label", 32], false, false],
    ["from_seq", "from_seq", "uint", false, false],
    ["to_seq", "to_seq", "uint", false, false],
  ] },
  OriginLeaf: { name: "bridge.import.v1 origin_leaf", section: "core §4.2.13",
    layout: "map", fields: [
    ["profile_id", "profile_id", ["fixed", "ProfileId", 32], false, false],
    ["ct_hash", "ct_hash", ["fixed", "CtHash", 32], false, false],
    ["client_id", "client_id", ["fixed", "ClientId", 32], false, false],
    ["client_seq", "client_seq", "uint", false, false],
  ] },
  Endpoint: { name: "disc.hub.advertise.v1 endpoint", section: "spec-5 4.1",
    layout: "map", fields: [
    ["kind", "kind", "text", false, false],
    ["url", "url", "text", false, false],
  ] },
  AuthPolicy: { name: "disc.service.advertise.v1 auth_policy", section: "spec-5 4.3",
    layout: "map", fields: [
    ["mode", "mode", ["one", ["cap_token", "mtls", "none", "other"], 0], false, false],
    ["details", "details", "any", true, false],
  ] },
  Operator: { name: "disc.service.advertise.v1 operator", section: "spec-5 4.3",
    layout: "map", fields: [
    ["org", "org", "text", true, false],
    ["contact", "contact", "text", true, false],
  ] },
  QueryError: { name: "disc.query.res.v1 error", section: "spec-5 6.1",
    layout: "map", fields: [
    ["code", "code", "text", false, false],
    ["detail", "detail", "text", true, false],
  ] },
  DeviceFlags: { name: "id.device.v1 flags", section: "ID 6.2",
    layout: "map", fields: [
    ["disabled", "disabled", "bool", true, false],
  ] },
  ErrorBody: { name: "rpc.res.v1 error", section: "RPC0.2",
    layout: "map", fields: [
    ["code", "code", "text", false, false],
    ["detail", "detail", "text", true, false],
  ] },
};

export const RECORDS: readonly RecordSchema[] = [
  { id: "21ae56f19b987eb759f1882cd1a7d877688acb63d896ba1988ac794378554723", overlays: ["bridge.exports"], name: "bridge.exported.v1", section: "products-spec-1 4.6",
    layout: "map", fields: [
    ["bundle_id", "bundle_id", ["fixed", "BundleId", 32], false, false],
    ["prev_bundle_id", "prev_bundle_id", ["fixed", "BundleId", 32], false, false],
    ["parts_hash", "parts_hash", ["fixed", "PartsHash", 32], false, false],
    ["source_hub_id", "source_hub_id", ["fixed", "HubId", 32], false, false],
    ["stream_id", "stream_id", ["fixed", "StreamId", 32], false, false],
    ["stream", "stream", "text", true, false],
    ["label", "label", ["fixed", "Label", 32], false, false],
    ["from_seq", "from_seq", "uint", false, false],
    ["to_seq", "to_seq", "uint", false, false],
    ["events", "events", "uint", false, false],
    ["root_before", "root_before", ["fixed", "MmrRoot", 32], false, false],
    ["peaks_before", "peaks_before", ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["root_after", "root_after", ["fixed", "MmrRoot", 32], false, false],
    ["checkpoint", "checkpoint", ["fixed", "CheckpointHash", 32], false, false],
    ["ts", "ts", "uint", false, false],
    ["bridge_id", "bridge_id", ["fixed", "ClientId", 32], false, false],
    ["operator", "operator", "text", false, false],
  ] },
  { id: "03221d34314c75555ef635c5ad5b9b9f7347c5cce59394a2aecf36e7fd7937a5", overlays: ["bridge.imports"], name: "bridge.imported.v1", section: "products-spec-1 4.6",
    layout: "map", fields: [
    ["bundle_id", "bundle_id", ["fixed", "BundleId", 32], false, false],
    ["prev_bundle_id", "prev_bundle_id", ["fixed", "BundleId", 32], false, false],
    ["source_hub_id", "source_hub_id", ["fixed", "HubId", 32], false, false],
    ["source_bridge_id", "source_bridge_id", ["fixed", "ClientId", 32], false, false],
    ["source_stream_id", "source_stream_id", ["fixed", "StreamId", 32], false, false],
    ["source_label", "source_label", ["fixed", "Label", 32], false, false],
    ["from_seq", "from_seq", "uint", false, false],
    ["to_seq", "to_seq", "uint", false, false],
    ["events", "events", "uint", false, false],
    ["root_before", "root_before", ["fixed", "MmrRoot", 32], false, false],
    ["peaks_before", "peaks_before", ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["root_after", "root_after", ["fixed", "MmrRoot", 32], false, false],
    ["mode", "mode", ["one", ["wrap", "reseal"], 0], false, false],
    ["targets", "targets", ["list", ["object", "TargetRange"], 0], false, false],
    ["skipped_from", "skipped_from", "uint", true, false],
    ["import_time", "import_time", "uint", false, false],
    ["bridge_id", "bridge_id", ["fixed", "ClientId", 32], false, false],
    ["operator", "operator", "text", false, false],
  ] },
  { id: "2e12365c43b23f22dfcce46d22f75539b23faece9613191a34dd9c1596a1062d", overlays: ["bridge.imports"], name: "bridge.import.failed.v1", section: "products-spec-1 4.5",
    layout: "map", fields: [
    ["bundle_id", "bundle_id", ["fixed", "BundleId", 32], true, false],
    ["position", "position", "uint", false, false],
    ["code", "code", "text", false, false],
    ["reason", "reason", "text", false, false],
    ["import_time", "import_time", "uint", false, false],
    ["bridge_id", "bridge_id", ["fixed", "ClientId", 32], false, false],
    ["operator", "operator", "text", false, false],
  ] },
  { id: "44e8ef7685ba32b16c00f2940d2eb8dad16cd8d13ce3e250ea8a8177072432f8", overlays: ["bridge.imports"], name: "bridge.import.gap.v1", section: "products-spec-1 4.5",
    layout: "map", fields: [
    ["bundle_id", "bundle_id", ["fixed", "BundleId", 32], false, false],
    ["missing_bundle_id", "missing_bundle_id", ["fixed", "BundleId", 32], false, false],
    ["skipped_from", "skipped_from", "uint", false, false],
    ["import_time", "import_time", "uint", false, false],
    ["bridge_id", "bridge_id", ["fixed", "ClientId", 32], false, false],
    ["operator", "operator", "text", false, false],
  ] },
  { id: "2c940cc4a361690ce85a6df334a48312f440acc37c06625138a6c1d619eb5781", overlays: ["bridge.imports"], name: "bridge.import.mapping.v1", section: "products-spec-1 4.5",
    layout: "map", fields: [
    ["source_hub_id", "source_hub_id", ["fixed", "HubId", 32], false, false],
    ["source_stream_id", "source_stream_id", ["fixed", "StreamId", 32], false, false],
    ["source_stream", "source_stream", "text", false, false],
    ["target_stream_id", "target_stream_id", ["fixed", "StreamId", 32], false, false],
    ["target_stream", "target_stream", "text", false, false],
    ["import_time", "import_time", "uint", false, false],
    ["bridge_id", "bridge_id", ["fixed", "ClientId", 32], false, false],
    ["operator", "operator", "text", false, false],
  ] },
  { id: "e87dfd4b555face93427ba57231c9dd5f6e4dccf0b4fe5f232da603bbb50d58c", overlays: ["bridge.origins"], name: "bridge.import.v1", section: "P7",
    layout: "map", fields: [
    ["bundle_id", "bundle_id", ["fixed", "BundleId", 32], false, false],
    ["source_hub_id", "source_hub_id", ["fixed", "HubId", 32], false, false],
    ["source_label", "source_label", ["fixed", "Label", 32], false, false],
    ["source_stream_seq", "source_stream_seq", "uint", false, false],
    ["origin_receipt", "origin_receipt", "bytes", false, false],
    ["origin_msg", "origin_msg", "bytes", true, false],
    ["import_time", "import_time", "uint", false, false],
    ["bridge_id", "bridge_id", ["fixed", "ClientId", 32], false, false],
    ["origin_leaf", "origin_leaf", ["object", "OriginLeaf"], true, false],
  ] },
  { id: "72cc17a306c9c7f80386a69493ebc6b3409cfd04574b184cbaed20d6ed5dd2ef", overlays: ["bridge.origins"], name: "veen.attached.v1", section: "4.6, P7",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["schema", 2n, ["fixed", "SchemaId", 32], false, false],
    ["body", 3n, "bytes", false, false],
    ["attachments", 4n, ["list", ["object", "AttachmentRef"], 0], false, false],
  ] },
  { id: "90be86c2cbef28467387b4c22a6b1185de7a2f57028cb4f125ef01d41c632c29", overlays: ["fed.authority"], name: "veen.fed.authority.v1", section: "FED1 2.2",
    layout: "map", fields: [
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], false, false],
    ["stream_id", "stream_id", ["fixed", "StreamId", 32], false, false],
    ["primary_hub", "primary_hub", ["fixed", "HubId", 32], false, false],
    ["replica_hubs", "replica_hubs", ["list", ["fixed", "HubId", 32], 0], false, false],
    ["policy", "policy", ["one", ["single-primary", "multi-primary"], 0], false, false],
    ["ts", "ts", "uint", false, false],
    ["ttl", "ttl", "uint", false, false],
  ] },
  { id: "65bef597b18fbe7f90cad835fb7d2d7fac889887d2ee9ad7cc1eb2cd66cdc13e", overlays: ["fed.authority"], name: "veen.fed.handover.v1", section: "RESOLUTIONS P9, H7",
    layout: "map", fields: [
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], false, false],
    ["identity", "identity", "bytes", false, false],
    ["handover", "handover", "bytes", false, false],
  ] },
  { id: "199270cccd72d7d8b6b6905c457a79aa2750e0c1631efd07e095466e5efa3999", overlays: ["revocation"], name: "veen.revocation.v1", section: "KEX1+ 4.3",
    layout: "map", fields: [
    ["kind", "kind", ["one", ["client-id", "auth-ref", "cap-token"], 0], false, false],
    ["target", "target", ["fixed", "RevokedId", 32], false, false],
    ["reason", "reason", "text", true, false],
    ["ts", "ts", "uint", false, false],
    ["ttl", "ttl", "uint", true, false],
  ] },
  { id: "a5329b5c86c5aa57419443be2bd881d1a74d1fe4e5b441e2bfe40072c0b3d735", overlays: ["label.class"], name: "veen.label.class.v1", section: "LCLASS0 6.1",
    layout: "map", fields: [
    ["label", "label", ["fixed", "Label", 32], false, false],
    ["class_", "class", "text", false, false],
    ["sensitivity", "sensitivity", "text", true, false],
    ["retention_hint", "retention_hint", "uint", true, false],
  ] },
  { id: "7c5439faf099af62d354af265f5af72b800cfbdcecc61750460d641a1a8a8141", overlays: ["meta.schema"], name: "veen.meta.schema.v1", section: "META0+ 7.1",
    layout: "map", fields: [
    ["schema_id_", "schema_id", ["fixed", "SchemaId", 32], false, false],
    ["name", "name", "text", false, false],
    ["version", "version", "text", false, false],
    ["doc_url", "doc_url", "text", true, false],
    ["owner", "owner", ["fixed", "VerifyKey", 32], true, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "6ce7e4290e862ce00f32fb4853c2c5627fad2f3e8562a930c8d52830e848dc78", overlays: ["crdt.lww"], name: "crdt.lww.v1", section: "CRDT0.1",
    layout: "map", fields: [
    ["key", "key", "bytes", false, false],
    ["ts", "ts", "uint", false, false],
    ["value", "value", "bytes", false, false],
  ] },
  { id: "48fed715da64ee0a65bb4e5893ba37003908f788bd9100d3e0bd36ed623f6e03", overlays: ["crdt.orset"], name: "crdt.orset.v1", section: "CRDT0.2",
    layout: "map", fields: [
    ["id", "id", ["fixed", "AddId", 32], false, false],
    ["elem", "elem", "bytes", false, false],
  ] },
  { id: "48fed715da64ee0a65bb4e5893ba37003908f788bd9100d3e0bd36ed623f6e03", overlays: ["crdt.orset"], name: "crdt.orset.v1", section: "CRDT0.2",
    layout: "map", fields: [
    ["tomb", "tomb", ["list", ["fixed", "AddId", 32], 0], false, false],
  ] },
  { id: "71088dc53e35acdb4bce90c4d69f0a505eaf275324a16b6998861c65f45261b5", overlays: ["crdt.gcnt"], name: "crdt.gcnt.v1", section: "CRDT0.3",
    layout: "map", fields: [
    ["shard", "shard", ["fixed", "ShardId", 32], false, false],
    ["delta", "delta", "uint", false, false],
  ] },
  { id: "271e759a6f5f0bbb6d5e1fa09f9a73e9b84c75499e708aa0d315d4d538034ab4", overlays: ["disc.directory"], name: "disc.hub.advertise.v1", section: "spec-5 4.1",
    layout: "map", fields: [
    ["hub_id", "hub_id", ["fixed", "HubId", 32], false, false],
    ["hub_pk", "hub_pk", ["fixed", "HubPk", 32], false, false],
    ["profile_id", "profile_id", ["fixed", "ProfileId", 32], false, false],
    ["region", "region", "text", false, false],
    ["tags", "tags", ["list", "text", 0], false, false],
    ["endpoints", "endpoints", ["list", ["object", "Endpoint"], 0], false, false],
    ["overlays", "overlays", ["list", ["fixed", "OverlayId", 32], 0], false, false],
    ["ttl_sec", "ttl_sec", "uint", false, false],
    ["version", "version", "text", false, false],
    ["expires_at", "expires_at", "uint", true, false],
  ] },
  { id: "3cf37adbbe5f29483fcec3a2dab9e2d7a57f48a196f2f53b96e6ce2319054c31", overlays: ["disc.directory"], name: "disc.overlay.advertise.v1", section: "spec-5 4.2",
    layout: "map", fields: [
    ["overlay_id", "overlay_id", ["fixed", "OverlayId", 32], false, false],
    ["name", "name", "text", false, false],
    ["version", "version", "text", false, false],
    ["schemas", "schemas", ["list", ["fixed", "SchemaId", 32], 0], false, false],
    ["docs_url", "docs_url", "text", true, false],
    ["tags", "tags", ["list", "text", 0], false, false],
    ["ttl_sec", "ttl_sec", "uint", false, false],
    ["expires_at", "expires_at", "uint", true, false],
  ] },
  { id: "e55868e8841a96b16e302f813fcbd1f9c4da6ee1f4b2d767a18c52dca9d2de07", overlays: ["disc.directory"], name: "disc.service.advertise.v1", section: "spec-5 4.3",
    layout: "map", fields: [
    ["service_id", "service_id", ["fixed", "ServiceId", 32], false, false],
    ["name", "name", "text", false, false],
    ["overlay_id", "overlay_id", ["fixed", "OverlayId", 32], false, false],
    ["methods", "methods", ["list", "text", 0], false, false],
    ["stream_ids", "stream_ids", ["list", ["fixed", "StreamId", 32], 0], false, false],
    ["regions", "regions", ["list", "text", 0], false, false],
    ["required_caps", "required_caps", ["list", "text", 0], false, false],
    ["auth_policy", "auth_policy", ["object", "AuthPolicy"], true, false],
    ["operator", "operator", ["object", "Operator"], true, false],
    ["tags", "tags", ["list", "text", 0], false, false],
    ["ttl_sec", "ttl_sec", "uint", false, false],
    ["expires_at", "expires_at", "uint", true, false],
  ] },
  { id: "48605f128db4eb7456e1781f063b55eab2c6c0c54c36fda6f8a7ff7e09ceb84c", overlays: ["disc.directory"], name: "disc.hub.retire.v1", section: "spec-5 4.1",
    layout: "map", fields: [
    ["hub_id", "hub_id", ["fixed", "HubId", 32], false, false],
    ["reason", "reason", "text", true, false],
  ] },
  { id: "003d9743d1d912c3d5be46d32f0de2813a6689aea445bd9d29c70911a48e48c5", overlays: ["disc.directory"], name: "disc.overlay.retire.v1", section: "spec-5 4.2",
    layout: "map", fields: [
    ["overlay_id", "overlay_id", ["fixed", "OverlayId", 32], false, false],
    ["reason", "reason", "text", true, false],
  ] },
  { id: "e5be5f94488274d71ecfacbc952b118cadbbce9546ab78fe596eab2d607ab33a", overlays: ["disc.directory"], name: "disc.service.retire.v1", section: "spec-5 4.3",
    layout: "map", fields: [
    ["service_id", "service_id", ["fixed", "ServiceId", 32], false, false],
    ["reason", "reason", "text", true, false],
  ] },
  { id: "591435f80118d5a2dea696a7b86a37b33494528b9e4d542a0180989d15b78486", overlays: ["disc.directory"], name: "disc.publishers.v1", section: "P16, ADR 0027",
    layout: "map", fields: [
    ["kind", "kind", ["one", ["overlay", "service"], 0], false, false],
    ["id", "id", ["fixed", "DescribedId", 32], false, false],
    ["publishers", "publishers", ["list", ["fixed", "ClientId", 32], 0], false, false],
  ] },
  { id: "d6eebdf498fe7be634ae8f2f27093feb80900415ee96150232ef89a95931d603", overlays: ["disc.directory"], name: "disc.hub.identity.v1", section: "core §8.4, ADR 0027",
    layout: "map", fields: [
    ["hub_id", "hub_id", ["fixed", "HubId", 32], false, false],
    ["identity", "identity", "bytes", false, false],
    ["sig", "sig", ["fixed", "Signature", 64], false, false],
  ] },
  { id: "07570374dbdac114e1eef8b0c4193459881f7cd4e3647552b6522a4d894a29f5", overlays: ["disc.directory", "id.directory", "operation.agreements", "operation.publications", "operation.recoveries", "record.actors", "wallet.owners"], name: "record.continuity.v1", section: "P10, KEX0.2",
    layout: "map", fields: [
    ["principal_id", "principal_id", ["fixed", "ClientId", 32], false, false],
    ["client_id", "client_id", ["fixed", "ClientId", 32], false, false],
    ["sig", "sig", ["fixed", "Signature", 64], false, false],
  ] },
  { id: "b7bbcce78121dd1d9bc874ada269606e98cc8afbc14424c8921cdeb62e00a597", overlays: ["disc.directory"], name: "disc.query.v1", section: "spec-5 6.1",
    layout: "map", fields: [
    ["kind", "kind", "text", false, false],
    ["filter", "filter", "any", false, false],
    ["limit", "limit", "uint", true, false],
    ["offset", "offset", "uint", true, false],
  ] },
  { id: "2b66547c3a1d1fe58049f5e1f17e1dc48e2ca974b72bab368c9780ce578c02fd", overlays: ["disc.directory"], name: "disc.query.res.v1", section: "spec-5 6.1",
    layout: "map", fields: [
    ["ok", "ok", "bool", false, false],
    ["results", "results", ["list", "any", 0], false, false],
    ["more", "more", "bool", false, false],
    ["error", "error", ["object", "QueryError"], true, false],
  ] },
  { id: "995000e25ee8ac0c3dce004c974f6fac3b0e23b916184fe4279a93568e123b9b", overlays: ["federation.mirrors"], name: "federation.mirror.v1", section: "spec-3 10.2",
    layout: "map", fields: [
    ["source_hub_identifier", "source_hub_identifier", "text", false, false],
    ["source_label", "source_label", ["fixed", "Label", 32], false, false],
    ["source_stream_seq", "source_stream_seq", "uint", false, false],
    ["source_leaf_hash", "source_leaf_hash", ["fixed", "LeafHash", 32], false, false],
    ["source_receipt_root", "source_receipt_root", ["fixed", "MmrRoot", 32], false, false],
    ["target_label", "target_label", ["fixed", "Label", 32], false, false],
    ["mirror_time", "mirror_time", "uint", true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "7a8badaef35f2d8d22161024963a6d9986d24c58972f2e1cf49b3e2c110593d9", overlays: ["id.directory"], name: "id.principal.v1", section: "ID 6.1",
    layout: "map", fields: [
    ["principal_pk", "principal_pk", ["fixed", "PrincipalPk", 32], false, false],
    ["created_at", "created_at", "uint", false, false],
    ["info", "info", "any", true, false],
  ] },
  { id: "df284b2e4bd8cd5116531b22d31e2d42807ce114463690c279276ae6bf0bb8f0", overlays: ["id.directory"], name: "id.device.v1", section: "ID 6.2",
    layout: "map", fields: [
    ["principal_pk", "principal_pk", ["fixed", "PrincipalPk", 32], false, false],
    ["device_id", "device_id", ["fixed", "DeviceId", 32], false, false],
    ["device_pk", "device_pk", ["fixed", "DevicePk", 32], false, false],
    ["dh_pk", "dh_pk", ["fixed", "DhPublicKey", 32], false, false],
    ["label", "label", "text", true, false],
    ["created_at", "created_at", "uint", false, false],
    ["expires_at", "expires_at", "uint", true, false],
    ["flags", "flags", ["object", "DeviceFlags"], true, false],
  ] },
  { id: "c21cceefa936abfa65d6ed1b535888b292203164b4c77eeb5183d7d0c9f5c6be", overlays: ["id.directory"], name: "id.ctx.profile.v1", section: "ID 7.1",
    layout: "map", fields: [
    ["ctx_id", "ctx_id", ["fixed", "CtxId", 32], false, false],
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], false, false],
    ["display_name", "display_name", "text", true, false],
    ["avatar_coid", "avatar_coid", ["fixed", "Coid", 32], true, false],
    ["prefs", "prefs", "any", true, false],
    ["updated_at", "updated_at", "uint", false, false],
  ] },
  { id: "aad5d3bc3cb0915570f074511162f08e78705e9eb18651ac6f0205a594da38dd", overlays: ["id.directory"], name: "id.org.profile.v1", section: "ID 8.1",
    layout: "map", fields: [
    ["org_id", "org_id", ["fixed", "OrgId", 32], false, false],
    ["display_name", "display_name", "text", true, false],
    ["metadata", "metadata", "any", true, false],
    ["created_at", "created_at", "uint", false, false],
    ["updated_at", "updated_at", "uint", false, false],
  ] },
  { id: "8431cdde4edee1780265fd28a4c786f7b4e393edb28e94872e1e2575fc4008af", overlays: ["id.directory"], name: "id.group.v1", section: "ID 8.2",
    layout: "map", fields: [
    ["org_id", "org_id", ["fixed", "OrgId", 32], false, false],
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], true, false],
    ["group_id", "group_id", ["fixed", "GroupId", 32], false, false],
    ["name", "name", "text", false, false],
    ["members_add", "members_add", ["list", ["fixed", "CtxId", 32], 0], true, false],
    ["members_remove", "members_remove", ["list", ["fixed", "CtxId", 32], 0], true, false],
    ["updated_at", "updated_at", "uint", false, false],
  ] },
  { id: "a6d1535e32d6c4a5a184750eff1ee7ef3c5ba5b796d79e09ae1e74ae5e9c4c54", overlays: ["id.directory"], name: "id.role.v1", section: "ID 8.3",
    layout: "map", fields: [
    ["org_id", "org_id", ["fixed", "OrgId", 32], false, false],
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], true, false],
    ["role", "role", "text", false, false],
    ["targets_ctx", "targets_ctx", ["list", ["fixed", "CtxId", 32], 0], true, false],
    ["targets_group", "targets_group", ["list", ["fixed", "GroupId", 32], 0], true, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "7454d511ff991578e29b354a41c8b9277c83a8fb692b4e7186ebe4b33b6e9c88", overlays: ["id.directory"], name: "id.handlemap.v1", section: "ID 10.1",
    layout: "map", fields: [
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], false, false],
    ["handle", "handle", "text", false, false],
    ["target_type", "target_type", ["one", ["ctx", "org"], 0], false, false],
    ["target_id", "target_id", ["fixed", "CtxId", 32], false, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "bea894a19e522bc318dcceb34ac9b134278df599ed87bfd452f7d9c2ed51b9e1", overlays: ["id.directory"], name: "id.external.v1", section: "ID 10.2",
    layout: "map", fields: [
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], false, false],
    ["ctx_id", "ctx_id", ["fixed", "CtxId", 32], true, false],
    ["org_id", "org_id", ["fixed", "OrgId", 32], true, false],
    ["provider", "provider", "text", false, false],
    ["external_sub", "external_sub", "text", false, false],
    ["attributes", "attributes", "any", true, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "87cd183a80d8a15d6934604623929862f40a18a07540d91777af37be3b9f8288", overlays: ["id.directory"], name: "id.revoke.v1", section: "ID 11.1",
    layout: "map", fields: [
    ["principal_pk", "principal_pk", ["fixed", "PrincipalPk", 32], true, false],
    ["org_id", "org_id", ["fixed", "OrgId", 32], true, false],
    ["device_id", "device_id", ["fixed", "DeviceId", 32], true, false],
    ["revoked_auth_ref", "revoked_auth_ref", ["fixed", "AuthRef", 32], true, false],
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], true, false],
    ["ctx_id", "ctx_id", ["fixed", "CtxId", 32], true, false],
    ["reason", "reason", "text", true, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "6711ffa407b56638029111fd0fbc2c74afb27d1b5dba4cbbb6e6a7b97aa53c4e", overlays: ["id.directory", "operation.recoveries", "wallet.owners"], name: "id.recovery.policy.v1", section: "spec-3 8.3",
    layout: "map", fields: [
    ["target_identity", "target_identity", ["fixed", "IdentityId", 32], false, false],
    ["guardians", "guardians", ["list", ["fixed", "IdentityId", 32], 0], false, false],
    ["threshold", "threshold", "uint", false, false],
    ["executors", "executors", ["list", ["fixed", "IdentityId", 32], 0], true, false],
    ["updated_at", "updated_at", "uint", false, false],
  ] },
  { id: "69799ac3b7694cce78a089b50c6fc473937061e08b4e6c2eb857143bcbe7c6bf", overlays: ["id.directory", "operation.recoveries", "wallet.owners"], name: "recovery.request.v1", section: "spec-3 8.2",
    layout: "map", fields: [
    ["target_identity", "target_identity", ["fixed", "IdentityId", 32], false, false],
    ["requested_new_identity", "requested_new_identity", ["fixed", "IdentityId", 32], false, false],
    ["reason", "reason", "text", true, false],
    ["request_time", "request_time", "uint", true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "b7c21bd0ea5c615f490cf369a26c4f7f7545dcf2692e04824626c26ae74c15f7", overlays: ["id.directory", "operation.recoveries", "wallet.owners"], name: "recovery.approval.v1", section: "spec-3 8.2",
    layout: "map", fields: [
    ["target_identity", "target_identity", ["fixed", "IdentityId", 32], false, false],
    ["requested_new_identity", "requested_new_identity", ["fixed", "IdentityId", 32], false, false],
    ["approver_identity", "approver_identity", ["fixed", "IdentityId", 32], false, false],
    ["policy_group_id", "policy_group_id", ["fixed", "PolicyGroupId", 32], true, false],
    ["decision", "decision", "text", false, false],
    ["decision_time", "decision_time", "uint", true, false],
    ["parent_operation_id", "parent_operation_id", ["fixed", "OperationId", 32], true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "a8ac8216ad4037eb8f8d23b9df047ccd9e6370204939daf01ec28b4907bde2f3", overlays: ["id.directory", "operation.recoveries", "wallet.owners"], name: "recovery.execution.v1", section: "spec-3 8.2",
    layout: "map", fields: [
    ["target_identity", "target_identity", ["fixed", "IdentityId", 32], false, false],
    ["new_identity", "new_identity", ["fixed", "IdentityId", 32], false, false],
    ["applied_time", "applied_time", "uint", true, false],
    ["approval_references", "approval_references", ["list", ["fixed", "OperationId", 32], 0], false, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "aaaa35ed6006d2a9eb9d8d7c828537f976b089199b01fd88cfaba009232201bc", overlays: ["kv.map"], name: "kv.put.v1", section: "11.4",
    layout: "map", fields: [
    ["key", "key", "bytes", false, false],
    ["value", "value", "bytes", false, false],
  ] },
  { id: "84fe1cccda2c5de86420fc60e9f5e1d9493c49ba83df214eb75c740db5424d80", overlays: ["kv.map"], name: "kv.delete.v1", section: "11.4",
    layout: "map", fields: [
    ["key", "key", "bytes", false, false],
  ] },
  { id: "e7ca17e7da0f5539e02fb89a234c58e8808d84e832a97e7c70d95fa4376469a5", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions"], name: "paid.operation.v1", section: "spec-3 2.2",
    layout: "map", fields: [
    ["operation_type", "operation_type", "text", false, false],
    ["operation_args", "operation_args", "any", false, false],
    ["payer_account", "payer_account", ["fixed", "AccountId", 32], false, false],
    ["payee_account", "payee_account", ["fixed", "AccountId", 32], false, false],
    ["amount", "amount", "uint", false, false],
    ["currency_code", "currency_code", "text", true, false],
    ["operation_reference", "operation_reference", ["fixed", "OperationId", 32], true, false],
    ["parent_operation_id", "parent_operation_id", ["fixed", "OperationId", 32], true, false],
    ["ttl_seconds", "ttl_seconds", "uint", true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "d069a2baa097837df1e6fc27f07a43ac9b9ed6717ac71f2dd72f977685d7c8c0", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions"], name: "access.grant.v1", section: "spec-3 3.2",
    layout: "map", fields: [
    ["subject_identity", "subject_identity", ["fixed", "IdentityId", 32], false, false],
    ["subject_label", "subject_label", "text", true, false],
    ["allowed_stream_ids", "allowed_stream_ids", ["list", ["fixed", "StreamId", 32], 0], false, false],
    ["expiry_time", "expiry_time", "uint", false, false],
    ["maximum_rate_per_second", "maximum_rate_per_second", "uint", true, false],
    ["maximum_burst", "maximum_burst", "uint", true, false],
    ["maximum_amount", "maximum_amount", "uint", true, false],
    ["currency_code", "currency_code", "text", true, false],
    ["reason", "reason", "text", true, false],
    ["parent_operation_id", "parent_operation_id", ["fixed", "OperationId", 32], true, false],
  ] },
  { id: "c2e4253b2ed25212b0c4e6fb192083b6597562f8636502940f1e2e85cae5c380", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions"], name: "access.revoke.v1", section: "spec-3 3.2",
    layout: "map", fields: [
    ["subject_identity", "subject_identity", ["fixed", "IdentityId", 32], false, false],
    ["target_capability_reference", "target_capability_reference", ["fixed", "AuthRef", 32], true, false],
    ["reason", "reason", "text", true, false],
    ["parent_operation_id", "parent_operation_id", ["fixed", "OperationId", 32], true, false],
  ] },
  { id: "69ceb5040a2b77e7d674c5d267f59c5c4ac6d5e4783ec1135b3babf921e38356", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions"], name: "delegated.execution.v1", section: "spec-3 4.2",
    layout: "map", fields: [
    ["principal_identity", "principal_identity", ["fixed", "IdentityId", 32], false, false],
    ["agent_identity", "agent_identity", ["fixed", "IdentityId", 32], false, false],
    ["delegation_chain", "delegation_chain", ["list", ["fixed", "AuthRef", 32], 0], false, false],
    ["operation_schema", "operation_schema", ["fixed", "SchemaId", 32], false, false],
    ["operation_body", "operation_body", "any", false, false],
    ["parent_operation_id", "parent_operation_id", ["fixed", "OperationId", 32], true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "52a0e2de4ec28fac8c204cabb95d457010936225afb1a80be65892940fbcdf1e", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions"], name: "operation.domain.v1", section: "spec-3 2.3, 3.4",
    layout: "map", fields: [
    ["authorities", "authorities", ["list", ["fixed", "IdentityId", 32], 0], false, false],
    ["negative_balances", "negative_balances", "bool", false, false],
    ["grants_required", "grants_required", "bool", false, false],
    ["currency_code", "currency_code", "text", true, false],
  ] },
  { id: "f1b37e207e51e78a9f83b076ad5d14edf9b811a9805d2dc403e2082f9c924aea", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger", "wallet.owners"], name: "wallet.open.v1", section: "WAL 5.1",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["realm_id", "realm_id", ["fixed", "RealmId", 32], false, false],
    ["ctx_id", "ctx_id", ["fixed", "CtxId", 32], false, false],
    ["currency", "currency", "text", false, false],
    ["created_at", "created_at", "uint", false, false],
  ] },
  { id: "5d1356a5493844febcda7efe7ef837fc220629b61dd99e7c6894940a57b61212", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.close.v1", section: "WAL 5.2",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "ed055113927b800be6ce91f71a5fa939cfd55e0142e37bff205e12fadde2020e", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.deposit.v1", section: "WAL 5.3",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["amount", "amount", "uint", false, false],
    ["ts", "ts", "uint", false, false],
    ["ref", "ref", "bytes", true, false],
  ] },
  { id: "9d29f9cf926c268be8fd5b5cbd0ddbb58d4433142f38674cd9f506decc6c125e", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.withdraw.v1", section: "WAL 5.4",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["amount", "amount", "uint", false, false],
    ["ts", "ts", "uint", false, false],
    ["ref", "ref", "bytes", true, false],
  ] },
  { id: "5350cf85e6e0438ed34db22694c3f142903719135aed659f2401fcbaff983911", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.transfer.v1", section: "WAL 5.5",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["to_wallet_id", "to_wallet_id", ["fixed", "WalletId", 32], false, false],
    ["amount", "amount", "uint", false, false],
    ["ts", "ts", "uint", false, false],
    ["transfer_id", "transfer_id", ["fixed", "TransferId", 32], false, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "df4af996179e4a2f9723f7dbdd8c62ff0a8831fc6e3865f550b8b25adfcf3ea0", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.adjust.v1", section: "WAL 5.6",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["delta", "delta", "int", false, false],
    ["ts", "ts", "uint", false, false],
    ["reason", "reason", "text", false, false],
    ["ref", "ref", "bytes", true, false],
  ] },
  { id: "61758374a8474b4154f301603c3519d7cbd8eb1f760aed05dddf57b6133c3979", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.limit.v1", section: "WAL 5.7",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["daily_limit", "daily_limit", ["null", "uint"], false, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "25914e04bfb5420b60c52a1fcd597501deafa771b8ce84aca081e3fd29051d36", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.freeze.v1", section: "WAL 5.8",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["ts", "ts", "uint", false, false],
    ["reason", "reason", "text", true, false],
  ] },
  { id: "756d26e8117efc3327584092d73c34d441ea1a0ee8c53b0566abb00611027312", overlays: ["paid.accounts", "paid.operations", "access.grants", "delegated.executions", "wallet.ledger"], name: "wallet.unfreeze.v1", section: "WAL 5.9",
    layout: "map", fields: [
    ["wallet_id", "wallet_id", ["fixed", "WalletId", 32], false, false],
    ["ts", "ts", "uint", false, false],
    ["reason", "reason", "text", true, false],
  ] },
  { id: "afd4972f750b0b8ec997965e48ccf376ef30966f288a5b249978f3bcc6370b2c", overlays: ["operation.results"], name: "operation.claim.v1", section: "spec-3 2.5",
    layout: "map", fields: [
    ["operation_id", "operation_id", ["fixed", "OperationId", 32], false, false],
  ] },
  { id: "22c4d81fab991a4e4089138f3a4bfd6432c15e0687147331f7956ee45f0f8ff4", overlays: ["operation.results"], name: "operation.result.v1", section: "spec-3 2.5",
    layout: "map", fields: [
    ["operation_id", "operation_id", ["fixed", "OperationId", 32], false, false],
    ["outcome", "outcome", ["one", ["done", "failed", "expired"], 0], false, false],
    ["result", "result", "any", true, false],
    ["reason", "reason", "text", true, false],
  ] },
  { id: "43677781ec866ae7ef696fb76027cb74f78a651ac75e04c7bc0a255c4568e85d", overlays: ["operation.agreements"], name: "agreement.definition.v1", section: "spec-3 5.2",
    layout: "map", fields: [
    ["agreement_id", "agreement_id", ["fixed", "AgreementId", 32], false, false],
    ["version", "version", "uint", false, false],
    ["terms_hash", "terms_hash", ["fixed", "TermsHash", 32], false, false],
    ["terms_attachment_root", "terms_attachment_root", ["fixed", "AttRoot", 32], true, false],
    ["parties", "parties", ["list", ["fixed", "IdentityId", 32], 0], false, false],
    ["effective_time", "effective_time", "uint", true, false],
    ["expiry_time", "expiry_time", "uint", true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "21b3cccd9b213437d20e570fe99a0c809a54822e3c0c1367f82a0b06308803d2", overlays: ["operation.agreements"], name: "agreement.confirmation.v1", section: "spec-3 5.2",
    layout: "map", fields: [
    ["agreement_id", "agreement_id", ["fixed", "AgreementId", 32], false, false],
    ["version", "version", "uint", false, false],
    ["party_identity", "party_identity", ["fixed", "IdentityId", 32], false, false],
    ["decision", "decision", "text", false, false],
    ["decision_time", "decision_time", "uint", true, false],
    ["parent_operation_id", "parent_operation_id", ["fixed", "OperationId", 32], true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "4a73c04facf15ce395992ac5ff5ed68f5a1ce4edb4e4913646780d3e7c01375b", overlays: ["operation.publications"], name: "data.publication.v1", section: "spec-3 6.2",
    layout: "map", fields: [
    ["publication_id", "publication_id", ["fixed", "PublicationId", 32], false, false],
    ["publisher_identity", "publisher_identity", ["fixed", "IdentityId", 32], false, false],
    ["content_root", "content_root", ["fixed", "ContentRoot", 32], false, false],
    ["content_class", "content_class", "text", false, false],
    ["version", "version", "text", false, false],
    ["labels", "labels", ["list", "text", 0], true, false],
    ["source_uri", "source_uri", "text", true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "30867c6002da254df81c6c836872d16267e541084a447a2c9d8854c94afff894", overlays: ["queue.jobs"], name: "queue.put.v1", section: "11.4",
    layout: "map", fields: [
    ["body", "body", "bytes", false, false],
  ] },
  { id: "41c7d8d12ed5ffa1933cb12c20d3f8285df644aec7c31c5bc839a5da66c216cb", overlays: ["queue.jobs"], name: "queue.take.v1", section: "11.4",
    layout: "map", fields: [
    ["job", "job", ["fixed", "JobId", 32], false, false],
    ["worker", "worker", ["fixed", "WorkerId", 32], false, false],
    ["ts", "ts", "uint", false, false],
    ["lease_sec", "lease_sec", "uint", false, false],
  ] },
  { id: "121af74a7c2f1bacf018e11fdb9f8e3a811ad78a8042404ca83403ad736151f1", overlays: ["queue.jobs"], name: "queue.ack.v1", section: "11.4",
    layout: "map", fields: [
    ["job", "job", ["fixed", "JobId", 32], false, false],
    ["worker", "worker", ["fixed", "WorkerId", 32], false, false],
    ["ts", "ts", "uint", false, false],
  ] },
  { id: "6daf7fd2d1a9cd4905e9b52e610b3072b4c14f9bcfe64b587808f5bf9ca8b62e", overlays: ["record.actors"], name: "record.event.v1", section: "P10",
    layout: "map", fields: [
    ["subject_id", "subject_id", "text", false, false],
    ["principal_id", "principal_id", ["fixed", "ClientId", 32], false, false],
    ["event_type", "event_type", "text", false, false],
    ["event_time", "event_time", "uint", false, false],
    ["origin", "origin", "text", false, false],
    ["payload", "payload", "any", false, false],
  ] },
  { id: "e10e568edd454448f73be461c8c82e992013195d258ec4d2ae490d2490c5163d", overlays: ["record.migrations"], name: "record.migration.v1", section: "P10",
    layout: "map", fields: [
    ["from_", "from", ["list", "text", 0], false, false],
    ["to", "to", ["list", "text", 0], false, false],
    ["reason", "reason", "text", false, false],
    ["at", "at", "uint", false, false],
  ] },
  { id: "9acfbdd772c4fae67434622bb786f071fd8f385f9435b00835b5c9f791f7e6ae", overlays: ["query.audits"], name: "query.audit.v1", section: "spec-3 9.2",
    layout: "map", fields: [
    ["requester_identity", "requester_identity", ["fixed", "ClientId", 32], false, false],
    ["resource_identifier", "resource_identifier", "text", false, false],
    ["resource_class", "resource_class", "text", false, false],
    ["query_parameters", "query_parameters", "any", true, false],
    ["purpose_code", "purpose_code", "text", true, false],
    ["result_digest", "result_digest", ["fixed", "ResultDigestHash", 32], true, false],
    ["request_time", "request_time", "uint", true, false],
    ["metadata", "metadata", "any", true, false],
  ] },
  { id: "e540b27949990e8a4a957b0b9e40d6331f14243a9a92046f40c7bb78c361cf39", overlays: ["rpc.calls"], name: "rpc.v1", section: "RPC0.1",
    layout: "map", fields: [
    ["method", "method", "text", false, false],
    ["args", "args", "any", false, false],
    ["timeout_ms", "timeout_ms", "uint", true, false],
    ["reply_to", "reply_to", ["fixed", "StreamId", 32], true, false],
    ["idem", "idem", "uint", true, false],
  ] },
  { id: "2419fa01b45232cbdaa33988952ebae8c442ceb83f48c93b02e2050aae40f1d5", overlays: ["rpc.calls"], name: "rpc.res.v1", section: "RPC0.2",
    layout: "map", fields: [
    ["ok", "ok", "bool", false, false],
    ["result", "result", "any", true, false],
    ["error", "error", ["object", "ErrorBody"], true, false],
  ] },
  { id: "ea25c20dda37a912b42ddbeb81c5d392441be2c95334b01fb73f746588e79b72", overlays: ["rpc.calls"], name: "rpc.server.v1", section: "ADR 0026",
    layout: "map", fields: [
    ["principal_id", "principal_id", ["fixed", "ClientId", 32], false, false],
    ["client_id", "client_id", ["fixed", "ClientId", 32], false, false],
    ["methods", "methods", ["list", "text", 0], false, false],
    ["lease_sec", "lease_sec", "uint", false, false],
    ["sig", "sig", ["fixed", "Signature", 64], false, false],
    ["replaces", "replaces", ["fixed", "ClientId", 32], true, false],
  ] },
  { id: "b2081911ba43199b228cadb12127b9453b15c2fc208de351b02bd84046c39e89", overlays: ["rpc.calls"], name: "rpc.take.v1", section: "ADR 0026",
    layout: "map", fields: [
    ["call", "call", ["fixed", "CallKey", 32], false, false],
  ] },
  { id: "38d54b9a599a8b6fbd433b715fb23999bb37b12a0f1b62a8e7505e58cd462788", overlays: ["state.checkpoints"], name: "state.checkpoint.v1", section: "spec-3 7.2",
    layout: "map", fields: [
    ["state_id", "state_id", ["fixed", "StateId", 32], false, false],
    ["upto_stream_seq", "upto_stream_seq", "uint", false, false],
    ["mmr_root", "mmr_root", ["fixed", "MmrRoot", 32], false, false],
    ["state_hash", "state_hash", ["fixed", "StateHash", 32], false, false],
    ["state_class", "state_class", "text", false, false],
    ["metadata", "metadata", "any", true, false],
  ] },
];
