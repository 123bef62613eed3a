// Made by schema.py from the declarations of veen-core; do not edit.

export type Fault = 0 | 1 | 2;
/** How one field is written: see `codec.ts`, which reads each of these. */
export type Kind =
  | "uint" | "int" | "text" | "bytes" | "bool" | "any"
  | readonly ["fixed", string, number]
  | readonly ["one", readonly (bigint | string)[], Fault]
  | readonly ["word", string, readonly string[]]
  | readonly ["list", Kind, number]
  | readonly ["null", Kind]
  | readonly ["object", string];
/** Name, key (position in an array), kind; then whether it is optional, and whether it may be left off. */
export type FieldSchema = readonly [string, bigint | string, Kind, boolean, boolean];
export interface ObjectSchema {
  readonly name: string;
  readonly section: string;
  readonly layout: "array" | "map";
  readonly fields: readonly FieldSchema[];
}
type Bytes = Uint8Array<ArrayBuffer>;

export interface Receipt {
  readonly ver: 1n;
  readonly label: Bytes;
  readonly stream_seq: bigint;
  readonly leaf_hash: Bytes;
  readonly mmr_root: Bytes;
  readonly hub_ts: bigint;
  readonly hub_sig: Bytes;
}
export interface Checkpoint {
  readonly ver: 1n;
  readonly label_prev: Bytes;
  readonly label_curr: Bytes;
  readonly upto_seq: bigint;
  readonly mmr_root: Bytes;
  readonly epoch: bigint;
  readonly hub_sig: Bytes;
  readonly witness_sigs: readonly (Bytes)[] | null;
}
export interface Msg {
  readonly ver: 1n;
  readonly profile_id: Bytes;
  readonly label: Bytes;
  readonly client_id: Bytes;
  readonly client_seq: bigint;
  readonly prev_ack: bigint;
  readonly auth_ref: Bytes | null;
  readonly ct_hash: Bytes;
  readonly ciphertext: Bytes;
  readonly sig: Bytes;
}
export interface MmrProof {
  readonly ver: 1n;
  readonly leaf_hash: Bytes;
  readonly path: readonly (PathStep)[];
  readonly peaks_after: readonly (Bytes)[];
}
export interface PathStep {
  readonly dir: 0n | 1n;
  readonly sib: Bytes;
}
export interface MmrConsistency {
  readonly ver: 1n;
  readonly from_seq: bigint;
  readonly to_seq: bigint;
  readonly peaks_from: readonly (Bytes)[];
  readonly path: readonly (Bytes)[];
}
export interface CapToken {
  readonly ver: 1n;
  readonly issuer_pk: Bytes;
  readonly subject_pk: Bytes;
  readonly allow: Allow;
  readonly sig_chain: readonly (Bytes)[];
}
export interface Allow {
  readonly stream_ids: readonly (Bytes)[];
  readonly ttl: bigint;
  readonly rate: Rate | null;
}
export interface Rate {
  readonly per_sec: bigint;
  readonly burst: bigint;
}
export interface IdentityCard {
  readonly ver: 1n;
  readonly id_sign: Bytes;
  readonly id_dh: Bytes;
  readonly prekeys: readonly (Prekey)[];
  readonly sig: Bytes;
}
export interface Prekey {
  readonly dh_pk: Bytes;
  readonly expires_at: bigint;
  readonly sig: Bytes;
}
export interface HubIdentity {
  readonly ver: 1n;
  readonly hub_id: Bytes;
  readonly hub_keys: readonly (HubKey)[];
  readonly anchoring: "data-directory" | "fingerprint" | "certificate";
}
export interface HubKey {
  readonly key_id: Bytes;
  readonly hub_pk: Bytes;
  readonly valid_from: bigint;
  readonly valid_until: bigint | null;
  readonly endorsement: Bytes | null;
}
export interface NextIdentity {
  readonly identity: HubIdentity;
  readonly signature: Bytes;
}
export interface Equivocation {
  readonly ver: 1n;
  readonly first: Statement;
  readonly second: Statement;
}
export interface Statement {
  readonly hub_pk: Bytes;
  readonly receipt: Receipt;
}
export interface HubEvidence {
  readonly kind: "veen-hub-evidence";
  readonly ver: 1n;
  readonly identity: HubIdentity;
  readonly receipt: Receipt;
  readonly proof: MmrProof;
  readonly head: LabelHead;
  readonly index: bigint;
  readonly head_proof: readonly (Bytes)[];
  readonly checkpoint: Bytes;
  readonly origin: string | null;
}
export interface LabelHead {
  readonly ver: 1n;
  readonly label: Bytes;
  readonly upto_seq: bigint;
  readonly mmr_root: Bytes;
  readonly hub_ts: bigint;
}
export interface HubLogFork {
  readonly kind: "veen-hub-log-fork";
  readonly ver: 1n;
  readonly identity: HubIdentity;
  readonly origin: string;
  readonly earlier: Bytes;
  readonly later: Bytes;
  readonly cut: CutTree | null;
}
export interface CutTree {
  readonly before: readonly (Bytes)[];
  readonly after: readonly (Bytes)[];
}
export interface LabelFork {
  readonly kind: "veen-label-fork";
  readonly ver: 1n;
  readonly identity: HubIdentity;
  readonly origin: string;
  readonly earlier: LabelStatement;
  readonly later: LabelStatement;
  readonly cut: CutTree | null;
}
export interface LabelStatement {
  readonly receipt: Receipt | null;
  readonly head: LabelHead | null;
  readonly index: bigint | null;
  readonly proof: readonly (Bytes)[] | null;
  readonly checkpoint: Bytes | null;
}
export interface LogContradiction {
  readonly kind: "veen-log-contradiction";
  readonly ver: 1n;
  readonly claim: "two-roots" | "fork" | "unproven";
  readonly notes: readonly (string)[];
  readonly proof: readonly (Bytes)[];
  readonly seen_at: bigint;
}
export interface ResultFile {
  readonly kind: "veen-query-result";
  readonly ver: 1n;
  readonly descriptor_json: Bytes;
  readonly digest_json: Bytes;
  readonly rows_json: Bytes;
  readonly row_hashes: Bytes;
  readonly evidence: ResultEvidence;
}
export interface ResultEvidence {
  readonly identities: readonly (HubIdentity)[];
  readonly sources: readonly (SourceEvidence)[];
  readonly matched: Bytes | null;
}
export interface SourceEvidence {
  readonly head: Bytes | null;
  readonly receipts: readonly (Bytes)[];
  readonly proof: Bytes;
  readonly link: HubLogLink | null;
}
export interface HubLogLink {
  readonly ver: 1n;
  readonly head: LabelHead;
  readonly index: bigint;
  readonly head_proof: readonly (Bytes)[];
  readonly checkpoint: Bytes;
  readonly consistency: MmrConsistency | null;
  readonly origin: string | null;
}
export interface Transcript {
  readonly kind: "veen-rpc-transcript";
  readonly ver: 1n;
  readonly announcement: TranscriptMessage;
  readonly request: TranscriptMessage;
  readonly reply: TranscriptMessage;
}
export interface TranscriptMessage {
  readonly msg: Bytes;
  readonly disclosure: Bytes;
  readonly evidence: HubEvidence;
}
export interface Keystore {
  readonly ver: 1n;
  readonly kdf: "argon2id";
  readonly passes: bigint;
  readonly memory: bigint;
  readonly salt: Bytes;
  readonly nonce: Bytes;
  readonly sealed: Bytes;
}
export interface Secrets {
  readonly ver: 1n;
  readonly id_sign: Bytes;
  readonly id_dh: Bytes;
  readonly created_at: bigint;
  readonly prekeys: readonly (PrekeySecret)[];
}
export interface PrekeySecret {
  readonly secret: Bytes;
  readonly expires_at: bigint;
}
export interface KeyFile {
  readonly ver: 1n;
  readonly hub_pk: Bytes;
  readonly seed: Bytes;
}
export interface PowCookie {
  readonly challenge: Bytes;
  readonly nonce: bigint;
  readonly difficulty: bigint;
}
export interface Manifest {
  readonly ver: 1n;
  readonly form: "set" | "chunks";
  readonly hub_id: Bytes;
  readonly label: Bytes;
  readonly from_seq: bigint;
  readonly to_seq: bigint;
  readonly from_ts: bigint;
  readonly to_ts: bigint;
  readonly peaks_before: readonly (Bytes)[];
  readonly peaks_after: readonly (Bytes)[];
  readonly pruned: readonly (PrunedRange)[];
  readonly files: readonly (ExportedFile)[];
  readonly before: Receipt | null;
  readonly later: LaterCheckpoint | null;
}
export interface PrunedRange {
  readonly start_seq: bigint;
  readonly end_seq: bigint;
}
export interface ExportedFile {
  readonly name: string;
  readonly size: bigint;
  readonly digest: Bytes;
}
export interface LaterCheckpoint {
  readonly checkpoint: Checkpoint;
  readonly consistency: MmrConsistency;
}
export interface IndexRow {
  readonly offset: bigint;
  readonly stream_seq: bigint;
}
export interface PrunedPayload {
  readonly pruned: PrunedEntry;
}
export interface PrunedEntry {
  readonly receipt: Receipt;
  readonly entry_hash: Bytes;
  readonly profile_id: Bytes;
  readonly client_id: Bytes;
  readonly client_seq: bigint;
  readonly prev_ack: bigint;
  readonly ct_hash: Bytes;
  readonly auth_ref: Bytes | null;
}
export interface AuthorizePayload {
  readonly authorize: Bytes;
}
export interface Fork {
  readonly ver: 1n;
  readonly old_hub: Bytes;
  readonly new_hub: Bytes;
  readonly hub_ts: bigint;
  readonly labels: bigint;
  readonly cuts_root: Bytes;
  readonly new_sig: Bytes;
  readonly old_sig: Bytes | null;
}
export interface ForkCut {
  readonly label: Bytes;
  readonly upto_seq: bigint;
  readonly mmr_root: Bytes;
}
export interface Registry {
  readonly ver: 1n;
  readonly hub_id: Bytes;
  readonly limits: Limits;
  readonly profile: Profile;
  readonly zstd_level: bigint | null;
  readonly admin_pk: Bytes | null;
}
export interface Limits {
  readonly max_msg_bytes: bigint;
  readonly max_hdr_bytes: bigint;
  readonly max_body_bytes: bigint;
  readonly max_attachments_per_msg: bigint;
  readonly max_attachment_bytes: bigint;
  readonly max_chunk_bytes: bigint;
  readonly max_checkpoint_interval: bigint;
  readonly max_cap_rate_per_sec: bigint;
  readonly max_cap_rate_burst: bigint;
  readonly max_epoch_skew_sec: bigint;
}
export interface Profile {
  readonly aead: "xchacha20poly1305";
  readonly kdf: "hkdf-sha256";
  readonly sig: "ed25519";
  readonly dh: "x25519";
  readonly hpke_suite: "X25519-HKDF-SHA256-CHACHA20POLY1305";
  readonly epoch_sec: bigint;
  readonly pad_block: bigint;
  readonly mmr_hash: "sha256";
}
export interface LabelRecord {
  readonly ver: 1n;
  readonly state: ClientState;
  readonly keys: readonly (ClientKey)[];
}
export interface ClientState {
  readonly ver: 1n;
  readonly label: Bytes;
  readonly profile_id: Bytes;
  readonly client_id: Bytes;
  readonly created_at: bigint;
  readonly client_seq: bigint;
  readonly last_stream_seq: bigint;
  readonly peaks: readonly (Bytes)[];
  readonly head: Receipt | null;
  readonly checkpointed: bigint;
  readonly pending: readonly (Bytes)[];
  readonly stalls: bigint;
  readonly rk: Bytes;
  readonly checkpoint: Checkpoint | null;
}
export interface ClientKey {
  readonly client_id: Bytes;
  readonly seed: Bytes | null;
  readonly created_at: bigint;
  readonly client_seq: bigint;
}
export interface EpochsRecord {
  readonly ver: 1n;
  readonly epochs: readonly (bigint)[];
}
export interface HeldTokens {
  readonly ver: 1n;
  readonly tokens: readonly (HeldToken)[];
}
export interface HeldToken {
  readonly token: CapToken;
  readonly expires_at: bigint;
}
export interface HubCheckpointRecord {
  readonly ver: 1n;
  readonly checkpoint: Bytes;
}
export interface CheckpointBinding {
  readonly hub_id: Bytes;
  readonly key_id: Bytes;
  readonly label: Bytes;
  readonly epoch: bigint;
  readonly upto_seq: bigint;
  readonly mmr_root: Bytes;
}
export interface Anchor {
  readonly label: Bytes;
  readonly upto_seq: bigint;
  readonly anchor_ref: Bytes;
}
export interface Prune {
  readonly label: Bytes;
  readonly start_seq: bigint;
  readonly end_seq: bigint;
  readonly pruned_at: bigint;
}
export interface AnchoredRoot {
  readonly ver: 1n;
  readonly hub_id: Bytes;
  readonly label: Bytes;
  readonly upto_seq: bigint;
  readonly mmr_root: Bytes;
  readonly epoch: bigint;
  readonly ts: bigint;
}
export interface LedgerLine {
  readonly offset: bigint;
  readonly previous: Bytes;
  readonly root: AnchoredRoot;
}
export interface ChunkSummary {
  readonly label: Bytes;
  readonly start_seq: bigint;
  readonly end_seq: bigint;
  readonly mmr_root_end: Bytes;
  readonly entry_count: bigint;
  readonly total_bytes: bigint;
  readonly entry_hashes_root: Bytes;
}
export interface CheckpointIndexEntry {
  readonly upto_seq: bigint;
  readonly mmr_root: Bytes;
  readonly chunk_start: bigint;
  readonly chunk_end: bigint;
  readonly peaks_ref: string;
}
export interface PrunedHead {
  readonly label: Bytes;
  readonly start_seq: bigint;
  readonly end_seq: bigint;
  readonly pruned_at: bigint;
  readonly sizes: readonly (bigint)[];
}
export interface Status {
  readonly ver: 1n;
  readonly identity: HubIdentity;
  readonly identity_sig: Bytes;
  readonly profile: Profile;
  readonly limits: Limits;
  readonly hub_ts: bigint;
  readonly epoch: bigint;
  readonly control_label: Bytes;
  readonly gating: boolean;
  readonly enforces: readonly (string)[];
  readonly cannot_enforce: readonly (string)[];
  readonly pow_salt: Bytes;
  readonly pow_difficulty: bigint;
  readonly max_page_items: bigint;
  readonly level: string;
  readonly server_version: string;
  readonly hub_log_origin: string | null;
  readonly memories: readonly (string)[] | null;
  readonly not_signing: string | null;
  readonly replica_of: string | null;
  readonly handover: Handover | null;
}
export interface Handover {
  readonly ver: 1n;
  readonly old_hub: Bytes;
  readonly new_hub: Bytes;
  readonly hub_ts: bigint;
  readonly checkpoint: Bytes;
  readonly attachments: bigint;
  readonly attachments_hash: Bytes;
  readonly url: string;
  readonly sig: Bytes;
}
export interface AuthorizeResponse {
  readonly ver: 1n;
  readonly auth_ref: Bytes;
  readonly expires_at: bigint;
  readonly receipt: Receipt;
  readonly server_version: string | null;
}
export interface CapStatus {
  readonly ver: 1n;
  readonly auth_ref: Bytes;
  readonly issued_at: bigint;
  readonly known: boolean;
  readonly expires_at: bigint | null;
  readonly issuer_pk: Bytes | null;
  readonly subject_pk: Bytes | null;
  readonly server_version: string | null;
}
export interface CheckpointsResponse {
  readonly ver: 1n;
  readonly checkpoints: readonly (Checkpoint)[];
  readonly server_version: string | null;
}
export interface RetentionResponse {
  readonly ver: 1n;
  readonly chunks: bigint;
  readonly entries: bigint;
  readonly server_version: string | null;
}
export interface OkResponse {
  readonly ver: 1n;
  readonly ok: boolean;
  readonly server_version: string | null;
}
export interface AttachmentResponse {
  readonly ver: 1n;
  readonly coid: Bytes;
  readonly stored: boolean;
  readonly server_version: string | null;
}
export interface SubmitRequest {
  readonly ver: 1n;
  readonly msg: Msg;
}
export interface SubmitResponse {
  readonly ver: 1n;
  readonly receipt: Receipt;
  readonly server_version: string | null;
}
export interface StreamResponse {
  readonly ver: 1n;
  readonly label: Bytes;
  readonly from_seq: bigint;
  readonly to_seq: bigint | null;
  readonly items: readonly (StreamItem)[];
  readonly next_cursor: bigint | null;
  readonly mmr_proof: MmrProof | null;
  readonly server_version: string | null;
}
export interface StreamItem {
  readonly stream_seq: bigint;
  readonly msg: Msg;
  readonly receipt: Receipt | null;
}
export interface ControlResponse {
  readonly ver: 1n;
  readonly label: Bytes;
  readonly from_seq: bigint;
  readonly to_seq: bigint | null;
  readonly items: readonly (ControlItem)[];
  readonly next_cursor: bigint | null;
  readonly mmr_proof: MmrProof | null;
  readonly server_version: string | null;
}
export interface ControlItem {
  readonly stream_seq: bigint;
  readonly msg: CapToken;
  readonly receipt: Receipt | null;
}
export interface ReceiptResponse {
  readonly ver: 1n;
  readonly receipt: Receipt;
  readonly server_version: string | null;
}
export interface ProofResponse {
  readonly ver: 1n;
  readonly mmr_proof: MmrProof;
  readonly server_version: string | null;
}
export interface CheckpointResponse {
  readonly ver: 1n;
  readonly checkpoint: Checkpoint;
  readonly server_version: string | null;
}
export interface ConsistencyResponse {
  readonly ver: 1n;
  readonly mmr_consistency: MmrConsistency;
  readonly server_version: string | null;
}
export interface HubProofResponse {
  readonly ver: 1n;
  readonly head: LabelHead;
  readonly index: bigint;
  readonly proof: readonly (Bytes)[];
  readonly checkpoint: Bytes;
  readonly server_version: string | null;
}
export interface HubConsistencyResponse {
  readonly ver: 1n;
  readonly old_size: bigint;
  readonly new_size: bigint;
  readonly proof: readonly (Bytes)[];
  readonly checkpoint: Bytes;
  readonly server_version: string | null;
}
export interface ErrorEnvelope {
  readonly ver: 1n;
  readonly code: "E.FORMAT" | "E.SIZE" | "E.SIG" | "E.CAP" | "E.AUTH" | "E.RATE" | "E.SEQ" | "E.TIME" | "E.BAD_REQUEST" | "E.UNAUTHORIZED" | "E.FORBIDDEN" | "E.NOT_FOUND" | "E.CONFLICT" | "E.LIMIT" | "E.UNAVAILABLE" | "E.VERSION";
  readonly message: string;
  readonly detail: ErrorDetail | null;
  readonly retry_after: bigint | null;
  readonly request_id: string | null;
}
export interface ErrorDetail {
  readonly stage: "prefilter" | "structural" | "auth" | "commit" | null;
  readonly detail_enum: string | null;
  readonly field: string | null;
  readonly expected: string | null;
  readonly actual: string | null;
  readonly max_allowed: bigint | null;
  readonly label: Bytes | null;
  readonly stream_seq: bigint | null;
}
export interface PartTrailer {
  readonly ver: 1n;
  readonly number: bigint;
  readonly header: BundleHeader;
  readonly signature: Bytes;
}
export interface BundleHeader {
  readonly kind: "veen-bundle";
  readonly ver: 1n;
  readonly prev_bundle_id: Bytes;
  readonly prev_in_label: Bytes;
  readonly identity: HubIdentity;
  readonly profile: Profile;
  readonly stream: string;
  readonly epoch: bigint;
  readonly label: Bytes;
  readonly from_seq: bigint;
  readonly to_seq: bigint;
  readonly from_ts: bigint;
  readonly to_ts: bigint;
  readonly counts: BundleCounts;
  readonly root_before: Bytes;
  readonly peaks_before: readonly (Bytes)[];
  readonly root_after: Bytes;
  readonly checkpoint: Bytes;
  readonly attachments: "opened" | "omitted";
  readonly bridge_id: Bytes;
  readonly exported_at: bigint;
  readonly parts: readonly (PartRow)[];
  readonly head: HeadProof | null;
  readonly origin: string | null;
}
export interface BundleCounts {
  readonly events: bigint;
  readonly event_bytes: bigint;
  readonly attachments: bigint;
  readonly attachment_bytes: bigint;
  readonly unopened: bigint;
}
export interface PartRow {
  readonly first_seq: bigint;
  readonly last_seq: bigint;
  readonly attachments: bigint;
  readonly index_size: bigint;
  readonly size: bigint;
  readonly digest: Bytes;
}
export interface HeadProof {
  readonly head: LabelHead;
  readonly index: bigint;
  readonly proof: readonly (Bytes)[];
  readonly consistency: MmrConsistency | null;
}
export interface PartIndex {
  readonly ver: 1n;
  readonly peaks: readonly (Bytes)[];
  readonly hub_ts: bigint;
  readonly offsets: readonly (bigint)[];
  readonly attachments: readonly (IndexedAttachment)[];
  readonly unopened: bigint;
}
export interface IndexedAttachment {
  readonly coid: Bytes;
  readonly offset: bigint;
  readonly size: bigint;
}
export interface HubHead {
  readonly ver: 1n;
  readonly head: LabelHead;
  readonly index: bigint;
  readonly proof: readonly (Bytes)[];
  readonly checkpoint: Bytes;
  readonly consistency: MmrConsistency | null;
}
export interface HubManifest {
  readonly ver: 1n;
  readonly hub_id: Bytes;
  readonly labels: bigint;
  readonly size: bigint;
}
export interface PayloadHeader {
  readonly schema: Bytes;
  readonly parent_id: Bytes | null;
  readonly att_root: Bytes | null;
  readonly cap_ref: Bytes | null;
  readonly expires_at: bigint | null;
}
export interface Attached {
  readonly ver: 1n;
  readonly schema: Bytes;
  readonly body: Bytes;
  readonly attachments: readonly (AttachmentRef)[];
}
export interface AttachmentRef {
  readonly coid: Bytes;
  readonly size: bigint;
}
export interface Objects {
  Receipt: Receipt;
  Checkpoint: Checkpoint;
  Msg: Msg;
  MmrProof: MmrProof;
  PathStep: PathStep;
  MmrConsistency: MmrConsistency;
  CapToken: CapToken;
  Allow: Allow;
  Rate: Rate;
  IdentityCard: IdentityCard;
  Prekey: Prekey;
  HubIdentity: HubIdentity;
  HubKey: HubKey;
  NextIdentity: NextIdentity;
  Equivocation: Equivocation;
  Statement: Statement;
  HubEvidence: HubEvidence;
  LabelHead: LabelHead;
  HubLogFork: HubLogFork;
  CutTree: CutTree;
  LabelFork: LabelFork;
  LabelStatement: LabelStatement;
  LogContradiction: LogContradiction;
  ResultFile: ResultFile;
  ResultEvidence: ResultEvidence;
  SourceEvidence: SourceEvidence;
  HubLogLink: HubLogLink;
  Transcript: Transcript;
  TranscriptMessage: TranscriptMessage;
  Keystore: Keystore;
  Secrets: Secrets;
  PrekeySecret: PrekeySecret;
  KeyFile: KeyFile;
  PowCookie: PowCookie;
  Manifest: Manifest;
  PrunedRange: PrunedRange;
  ExportedFile: ExportedFile;
  LaterCheckpoint: LaterCheckpoint;
  IndexRow: IndexRow;
  PrunedPayload: PrunedPayload;
  PrunedEntry: PrunedEntry;
  AuthorizePayload: AuthorizePayload;
  Fork: Fork;
  ForkCut: ForkCut;
  Registry: Registry;
  Limits: Limits;
  Profile: Profile;
  LabelRecord: LabelRecord;
  ClientState: ClientState;
  ClientKey: ClientKey;
  EpochsRecord: EpochsRecord;
  HeldTokens: HeldTokens;
  HeldToken: HeldToken;
  HubCheckpointRecord: HubCheckpointRecord;
  CheckpointBinding: CheckpointBinding;
  Anchor: Anchor;
  Prune: Prune;
  AnchoredRoot: AnchoredRoot;
  LedgerLine: LedgerLine;
  ChunkSummary: ChunkSummary;
  CheckpointIndexEntry: CheckpointIndexEntry;
  PrunedHead: PrunedHead;
  Status: Status;
  Handover: Handover;
  AuthorizeResponse: AuthorizeResponse;
  CapStatus: CapStatus;
  CheckpointsResponse: CheckpointsResponse;
  RetentionResponse: RetentionResponse;
  OkResponse: OkResponse;
  AttachmentResponse: AttachmentResponse;
  SubmitRequest: SubmitRequest;
  SubmitResponse: SubmitResponse;
  StreamResponse: StreamResponse;
  StreamItem: StreamItem;
  ControlResponse: ControlResponse;
  ControlItem: ControlItem;
  ReceiptResponse: ReceiptResponse;
  ProofResponse: ProofResponse;
  CheckpointResponse: CheckpointResponse;
  ConsistencyResponse: ConsistencyResponse;
  HubProofResponse: HubProofResponse;
  HubConsistencyResponse: HubConsistencyResponse;
  ErrorEnvelope: ErrorEnvelope;
  ErrorDetail: ErrorDetail;
  PartTrailer: PartTrailer;
  BundleHeader: BundleHeader;
  BundleCounts: BundleCounts;
  PartRow: PartRow;
  HeadProof: HeadProof;
  PartIndex: PartIndex;
  IndexedAttachment: IndexedAttachment;
  HubHead: HubHead;
  HubManifest: HubManifest;
  PayloadHeader: PayloadHeader;
  Attached: Attached;
  AttachmentRef: AttachmentRef;
}
export type ObjectName = keyof Objects;

export const SCHEMA: Readonly<Record<ObjectName, ObjectSchema>> = {
  Receipt: { name: "RECEIPT", section: "4.3",
    layout: "array", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["label", 2n, ["fixed", "Label", 32], false, false],
    ["stream_seq", 3n, "uint", false, false],
    ["leaf_hash", 4n, ["fixed", "LeafHash", 32], false, false],
    ["mmr_root", 5n, ["fixed", "MmrRoot", 32], false, false],
    ["hub_ts", 6n, "uint", false, false],
    ["hub_sig", 7n, ["fixed", "Signature", 64], false, false],
  ] },
  Checkpoint: { name: "CHECKPOINT", section: "4.4",
    layout: "array", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["label_prev", 2n, ["fixed", "Label", 32], false, false],
    ["label_curr", 3n, ["fixed", "Label", 32], false, false],
    ["upto_seq", 4n, "uint", false, false],
    ["mmr_root", 5n, ["fixed", "MmrRoot", 32], false, false],
    ["epoch", 6n, "uint", false, false],
    ["hub_sig", 7n, ["fixed", "Signature", 64], false, false],
    ["witness_sigs", 8n, ["list", ["fixed", "Signature", 64], 1], true, true],
  ] },
  Msg: { name: "MSG", section: "4.1",
    layout: "array", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["profile_id", 2n, ["fixed", "ProfileId", 32], false, false],
    ["label", 3n, ["fixed", "Label", 32], false, false],
    ["client_id", 4n, ["fixed", "ClientId", 32], false, false],
    ["client_seq", 5n, "uint", false, false],
    ["prev_ack", 6n, "uint", false, false],
    ["auth_ref", 7n, ["null", ["fixed", "AuthRef", 32]], false, false],
    ["ct_hash", 8n, ["fixed", "CtHash", 32], false, false],
    ["ciphertext", 9n, "bytes", false, false],
    ["sig", 10n, ["fixed", "Signature", 64], false, false],
  ] },
  MmrProof: { name: "mmr_proof", section: "5.2",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["leaf_hash", 2n, ["fixed", "LeafHash", 32], false, false],
    ["path", 3n, ["list", ["object", "PathStep"], 0], false, false],
    ["peaks_after", 4n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
  ] },
  PathStep: { name: "mmr_proof.path", section: "5.2",
    layout: "map", fields: [
    ["dir", 1n, ["one", [0n, 1n], 0], false, false],
    ["sib", 2n, ["fixed", "NodeHash", 32], false, false],
  ] },
  MmrConsistency: { name: "mmr_consistency", section: "B11",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["from_seq", 2n, "uint", false, false],
    ["to_seq", 3n, "uint", false, false],
    ["peaks_from", 4n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["path", 5n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
  ] },
  CapToken: { name: "cap_token", section: "6",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["issuer_pk", 2n, ["fixed", "VerifyKey", 32], false, false],
    ["subject_pk", 3n, ["fixed", "ClientId", 32], false, false],
    ["allow", 4n, ["object", "Allow"], false, false],
    ["sig_chain", 5n, ["list", ["fixed", "Signature", 64], 0], false, false],
  ] },
  Allow: { name: "cap_token.allow", section: "6",
    layout: "map", fields: [
    ["stream_ids", 1n, ["list", ["fixed", "StreamId", 32], 0], false, false],
    ["ttl", 2n, "uint", false, false],
    ["rate", 3n, ["object", "Rate"], true, false],
  ] },
  Rate: { name: "cap_token.allow.rate", section: "6",
    layout: "map", fields: [
    ["per_sec", 1n, "uint", false, false],
    ["burst", 2n, "uint", false, false],
  ] },
  IdentityCard: { name: "identity_card", section: "spec-1 §15",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["id_sign", 2n, ["fixed", "VerifyKey", 32], false, false],
    ["id_dh", 3n, ["fixed", "DhPublicKey", 32], false, false],
    ["prekeys", 4n, ["list", ["object", "Prekey"], 0], false, false],
    ["sig", 5n, ["fixed", "Signature", 64], false, false],
  ] },
  Prekey: { name: "prekey", section: "spec-1 §3",
    layout: "map", fields: [
    ["dh_pk", 1n, ["fixed", "DhPublicKey", 32], false, false],
    ["expires_at", 2n, "uint", false, false],
    ["sig", 3n, ["fixed", "Signature", 64], false, false],
  ] },
  HubIdentity: { name: "hub-identity", section: "8.4",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["hub_id", 2n, ["fixed", "HubId", 32], false, false],
    ["hub_keys", 3n, ["list", ["object", "HubKey"], 0], false, false],
    ["anchoring", 4n, ["one", ["data-directory", "fingerprint", "certificate"], 0], false, false],
  ] },
  HubKey: { name: "hub_key", section: "8.4",
    layout: "map", fields: [
    ["key_id", 1n, ["fixed", "KeyId", 32], false, false],
    ["hub_pk", 2n, ["fixed", "HubPk", 32], false, false],
    ["valid_from", 3n, "uint", false, false],
    ["valid_until", 4n, "uint", true, false],
    ["endorsement", 5n, ["fixed", "Signature", 64], true, false],
  ] },
  NextIdentity: { name: "hub-identity.next", section: "8.4",
    layout: "map", fields: [
    ["identity", 1n, ["object", "HubIdentity"], false, false],
    ["signature", 2n, ["fixed", "Signature", 64], false, false],
  ] },
  Equivocation: { name: "equivocation", section: "spec-1 §16",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["first", 2n, ["object", "Statement"], false, false],
    ["second", 3n, ["object", "Statement"], false, false],
  ] },
  Statement: { name: "statement", section: "spec-1 §16",
    layout: "map", fields: [
    ["hub_pk", 1n, ["fixed", "HubPk", 32], false, false],
    ["receipt", 2n, ["object", "Receipt"], false, false],
  ] },
  HubEvidence: { name: "hub evidence", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-hub-evidence"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["identity", 3n, ["object", "HubIdentity"], false, false],
    ["receipt", 4n, ["object", "Receipt"], false, false],
    ["proof", 5n, ["object", "MmrProof"], false, false],
    ["head", 6n, ["object", "LabelHead"], false, false],
    ["index", 7n, "uint", false, false],
    ["head_proof", 8n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["checkpoint", 9n, "bytes", false, false],
    ["origin", 10n, "text", true, false],
  ] },
  LabelHead: { name: "label head", section: "RESOLUTIONS P1",
    layout: "array", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["label", 2n, ["fixed", "Label", 32], false, false],
    ["upto_seq", 3n, "uint", false, false],
    ["mmr_root", 4n, ["fixed", "MmrRoot", 32], false, false],
    ["hub_ts", 5n, "uint", false, false],
  ] },
  HubLogFork: { name: "hub log fork", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-hub-log-fork"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["identity", 3n, ["object", "HubIdentity"], false, false],
    ["origin", 4n, "text", false, false],
    ["earlier", 5n, "bytes", false, false],
    ["later", 6n, "bytes", false, false],
    ["cut", 7n, ["object", "CutTree"], true, false],
  ] },
  CutTree: { name: "cut tree", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["before", 1n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["after", 2n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
  ] },
  LabelFork: { name: "label fork", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-label-fork"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["identity", 3n, ["object", "HubIdentity"], false, false],
    ["origin", 4n, "text", false, false],
    ["earlier", 5n, ["object", "LabelStatement"], false, false],
    ["later", 6n, ["object", "LabelStatement"], false, false],
    ["cut", 7n, ["object", "CutTree"], true, false],
  ] },
  LabelStatement: { name: "label statement", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["receipt", 1n, ["object", "Receipt"], true, false],
    ["head", 2n, ["object", "LabelHead"], true, false],
    ["index", 3n, "uint", true, false],
    ["proof", 4n, ["list", ["fixed", "NodeHash", 32], 0], true, false],
    ["checkpoint", 5n, "bytes", true, false],
  ] },
  LogContradiction: { name: "log contradiction", section: "C2SP tlog-witness",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-log-contradiction"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["claim", 3n, ["one", ["two-roots", "fork", "unproven"], 0], false, false],
    ["notes", 4n, ["list", "text", 0], false, false],
    ["proof", 5n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["seen_at", 6n, "uint", false, false],
  ] },
  ResultFile: { name: "query result", section: "query-api §5",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-query-result"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["descriptor_json", 3n, "bytes", false, false],
    ["digest_json", 4n, "bytes", false, false],
    ["rows_json", 5n, "bytes", false, false],
    ["row_hashes", 6n, "bytes", false, false],
    ["evidence", 7n, ["object", "ResultEvidence"], false, false],
  ] },
  ResultEvidence: { name: "query evidence", section: "query-api §6",
    layout: "map", fields: [
    ["identities", 1n, ["list", ["object", "HubIdentity"], 0], false, false],
    ["sources", 2n, ["list", ["object", "SourceEvidence"], 0], false, false],
    ["matched", 3n, "bytes", true, false],
  ] },
  SourceEvidence: { name: "query evidence.source", section: "query-api §6",
    layout: "map", fields: [
    ["head", 1n, "bytes", true, false],
    ["receipts", 2n, ["list", "bytes", 0], false, false],
    ["proof", 3n, "bytes", false, false],
    ["link", 4n, ["object", "HubLogLink"], true, false],
  ] },
  HubLogLink: { name: "query evidence.hub log", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["head", 2n, ["object", "LabelHead"], false, false],
    ["index", 3n, "uint", false, false],
    ["head_proof", 4n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["checkpoint", 5n, "bytes", false, false],
    ["consistency", 6n, ["object", "MmrConsistency"], true, false],
    ["origin", 7n, "text", true, false],
  ] },
  Transcript: { name: "rpc transcript", section: "ADR 0026",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-rpc-transcript"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["announcement", 3n, ["object", "TranscriptMessage"], false, false],
    ["request", 4n, ["object", "TranscriptMessage"], false, false],
    ["reply", 5n, ["object", "TranscriptMessage"], false, false],
  ] },
  TranscriptMessage: { name: "rpc transcript message", section: "ADR 0026",
    layout: "map", fields: [
    ["msg", 1n, "bytes", false, false],
    ["disclosure", 2n, "bytes", false, false],
    ["evidence", 3n, ["object", "HubEvidence"], false, false],
  ] },
  Keystore: { name: "keystore", section: "keystore",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["kdf", 2n, ["one", ["argon2id"], 0], false, false],
    ["passes", 3n, "uint", false, false],
    ["memory", 4n, "uint", false, false],
    ["salt", 5n, ["fixed", "Salt", 16], false, false],
    ["nonce", 6n, ["fixed", "KeystoreNonce", 24], false, false],
    ["sealed", 7n, "bytes", false, false],
  ] },
  Secrets: { name: "secrets", section: "keystore",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["id_sign", 2n, ["fixed", "SigningSeed", 32], false, false],
    ["id_dh", 3n, ["fixed", "DhSecret", 32], false, false],
    ["created_at", 4n, "uint", false, false],
    ["prekeys", 5n, ["list", ["object", "PrekeySecret"], 0], false, false],
  ] },
  PrekeySecret: { name: "prekey_secret", section: "keystore",
    layout: "map", fields: [
    ["secret", 1n, ["fixed", "DhSecret", 32], false, false],
    ["expires_at", 2n, "uint", false, false],
  ] },
  KeyFile: { name: "hub key file", section: "8.4",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["hub_pk", 2n, ["fixed", "HubPk", 32], false, false],
    ["seed", 3n, ["fixed", "SigningSeed", 32], false, false],
  ] },
  PowCookie: { name: "pow_cookie", section: "SH1+ 5.2",
    layout: "map", fields: [
    ["challenge", "challenge", "bytes", false, false],
    ["nonce", "nonce", "uint", false, false],
    ["difficulty", "difficulty", "uint", false, false],
  ] },
  Manifest: { name: "export manifest", section: "ADR 0007",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["form", 2n, ["one", ["set", "chunks"], 0], false, false],
    ["hub_id", 3n, ["fixed", "HubId", 32], false, false],
    ["label", 4n, ["fixed", "Label", 32], false, false],
    ["from_seq", 5n, "uint", false, false],
    ["to_seq", 6n, "uint", false, false],
    ["from_ts", 7n, "uint", false, false],
    ["to_ts", 8n, "uint", false, false],
    ["peaks_before", 9n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["peaks_after", 10n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["pruned", 11n, ["list", ["object", "PrunedRange"], 0], false, false],
    ["files", 12n, ["list", ["object", "ExportedFile"], 0], false, false],
    ["before", 13n, ["object", "Receipt"], true, false],
    ["later", 14n, ["object", "LaterCheckpoint"], true, false],
  ] },
  PrunedRange: { name: "pruned range", section: "ADR 0007",
    layout: "array", fields: [
    ["start_seq", 1n, "uint", false, false],
    ["end_seq", 2n, "uint", false, false],
  ] },
  ExportedFile: { name: "exported file", section: "ADR 0007",
    layout: "array", fields: [
    ["name", 1n, "text", false, false],
    ["size", 2n, "uint", false, false],
    ["digest", 3n, ["fixed", "FileHash", 32], false, false],
  ] },
  LaterCheckpoint: { name: "later checkpoint", section: "ADR 0007",
    layout: "map", fields: [
    ["checkpoint", 1n, ["object", "Checkpoint"], false, false],
    ["consistency", 2n, ["object", "MmrConsistency"], false, false],
  ] },
  IndexRow: { name: "index row", section: "COMP0.1",
    layout: "map", fields: [
    ["offset", "offset", "uint", false, false],
    ["stream_seq", "stream_seq", "uint", false, false],
  ] },
  PrunedPayload: { name: "pruned payload", section: "ADR 0007",
    layout: "map", fields: [
    ["pruned", "pruned", ["object", "PrunedEntry"], false, false],
  ] },
  PrunedEntry: { name: "pruned entry", section: "retention",
    layout: "map", fields: [
    ["receipt", 1n, ["object", "Receipt"], false, false],
    ["entry_hash", 2n, ["fixed", "EntryHash", 32], false, false],
    ["profile_id", 3n, ["fixed", "ProfileId", 32], false, false],
    ["client_id", 4n, ["fixed", "ClientId", 32], false, false],
    ["client_seq", 5n, "uint", false, false],
    ["prev_ack", 6n, "uint", false, false],
    ["ct_hash", 7n, ["fixed", "CtHash", 32], false, false],
    ["auth_ref", 8n, ["fixed", "AuthRef", 32], true, false],
  ] },
  AuthorizePayload: { name: "authorize payload", section: "ADR 0007",
    layout: "map", fields: [
    ["authorize", "authorize", "bytes", false, false],
  ] },
  Fork: { name: "fork", section: "ADR 0007",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["old_hub", 2n, ["fixed", "HubId", 32], false, false],
    ["new_hub", 3n, ["fixed", "HubId", 32], false, false],
    ["hub_ts", 4n, "uint", false, false],
    ["labels", 5n, "uint", false, false],
    ["cuts_root", 6n, ["fixed", "MmrRoot", 32], false, false],
    ["new_sig", 7n, ["fixed", "Signature", 64], false, false],
    ["old_sig", 8n, ["fixed", "Signature", 64], true, false],
  ] },
  ForkCut: { name: "fork cut", section: "ADR 0007",
    layout: "array", fields: [
    ["label", 1n, ["fixed", "Label", 32], false, false],
    ["upto_seq", 2n, "uint", false, false],
    ["mmr_root", 3n, ["fixed", "MmrRoot", 32], false, false],
  ] },
  Registry: { name: "registry", section: "14.1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["hub_id", 2n, ["fixed", "HubId", 32], false, false],
    ["limits", 3n, ["object", "Limits"], false, false],
    ["profile", 4n, ["object", "Profile"], false, false],
    ["zstd_level", 5n, "uint", true, false],
    ["admin_pk", 6n, ["fixed", "VerifyKey", 32], true, false],
  ] },
  Limits: { name: "LIMITS", section: "14.1",
    layout: "map", fields: [
    ["max_msg_bytes", 1n, "uint", false, false],
    ["max_hdr_bytes", 2n, "uint", false, false],
    ["max_body_bytes", 3n, "uint", false, false],
    ["max_attachments_per_msg", 4n, "uint", false, false],
    ["max_attachment_bytes", 5n, "uint", false, false],
    ["max_chunk_bytes", 6n, "uint", false, false],
    ["max_checkpoint_interval", 7n, "uint", false, false],
    ["max_cap_rate_per_sec", 8n, "uint", false, false],
    ["max_cap_rate_burst", 9n, "uint", false, false],
    ["max_epoch_skew_sec", 10n, "uint", false, false],
  ] },
  Profile: { name: "profile", section: "3.2",
    layout: "map", fields: [
    ["aead", 1n, ["one", ["xchacha20poly1305"], 0], false, false],
    ["kdf", 2n, ["one", ["hkdf-sha256"], 0], false, false],
    ["sig", 3n, ["one", ["ed25519"], 0], false, false],
    ["dh", 4n, ["one", ["x25519"], 0], false, false],
    ["hpke_suite", 5n, ["one", ["X25519-HKDF-SHA256-CHACHA20POLY1305"], 0], false, false],
    ["epoch_sec", 6n, "uint", false, false],
    ["pad_block", 7n, "uint", false, false],
    ["mmr_hash", 8n, ["one", ["sha256"], 0], false, false],
  ] },
  LabelRecord: { name: "label_record", section: "RESYNC0.4",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["state", 2n, ["object", "ClientState"], false, false],
    ["keys", 3n, ["list", ["object", "ClientKey"], 0], false, false],
  ] },
  ClientState: { name: "client_state", section: "RESYNC0.4",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["label", 2n, ["fixed", "Label", 32], false, false],
    ["profile_id", 3n, ["fixed", "ProfileId", 32], false, false],
    ["client_id", 4n, ["fixed", "ClientId", 32], false, false],
    ["created_at", 5n, "uint", false, false],
    ["client_seq", 6n, "uint", false, false],
    ["last_stream_seq", 7n, "uint", false, false],
    ["peaks", 8n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["head", 9n, ["object", "Receipt"], true, false],
    ["checkpointed", 10n, "uint", false, false],
    ["pending", 11n, ["list", "bytes", 0], false, false],
    ["stalls", 12n, "uint", false, false],
    ["rk", 13n, ["fixed", "RatchetKey", 32], false, false],
    ["checkpoint", 14n, ["object", "Checkpoint"], true, false],
  ] },
  ClientKey: { name: "client_key", section: "KEX0.2",
    layout: "map", fields: [
    ["client_id", 1n, ["fixed", "ClientId", 32], false, false],
    ["seed", 2n, ["fixed", "SigningSeed", 32], true, false],
    ["created_at", 3n, "uint", false, false],
    ["client_seq", 4n, "uint", false, false],
  ] },
  EpochsRecord: { name: "epochs_record", section: "12",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["epochs", 2n, ["list", "uint", 0], false, false],
  ] },
  HeldTokens: { name: "held_tokens", section: "6.1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["tokens", 2n, ["list", ["object", "HeldToken"], 0], false, false],
  ] },
  HeldToken: { name: "held_token", section: "6.1",
    layout: "map", fields: [
    ["token", 1n, ["object", "CapToken"], false, false],
    ["expires_at", 2n, "uint", false, false],
  ] },
  HubCheckpointRecord: { name: "hub_checkpoint_record", section: "RESOLUTIONS P2",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["checkpoint", 2n, "bytes", false, false],
  ] },
  CheckpointBinding: { name: "checkpoint-binding", section: "8.4",
    layout: "map", fields: [
    ["hub_id", 1n, ["fixed", "HubId", 32], false, false],
    ["key_id", 2n, ["fixed", "KeyId", 32], false, false],
    ["label", 3n, ["fixed", "Label", 32], false, false],
    ["epoch", 4n, "uint", false, false],
    ["upto_seq", 5n, "uint", false, false],
    ["mmr_root", 6n, ["fixed", "MmrRoot", 32], false, false],
  ] },
  Anchor: { name: "anchor", section: "ANCHOR0.2",
    layout: "map", fields: [
    ["label", 1n, ["fixed", "Label", 32], false, false],
    ["upto_seq", 2n, "uint", false, false],
    ["anchor_ref", 3n, "bytes", false, false],
  ] },
  Prune: { name: "prune", section: "COMP0.1",
    layout: "map", fields: [
    ["label", 1n, ["fixed", "Label", 32], false, false],
    ["start_seq", 2n, "uint", false, false],
    ["end_seq", 3n, "uint", false, false],
    ["pruned_at", 4n, "uint", false, false],
  ] },
  AnchoredRoot: { name: "anchored root", section: "ANCHOR0.1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["hub_id", 2n, ["fixed", "HubId", 32], false, false],
    ["label", 3n, ["fixed", "Label", 32], false, false],
    ["upto_seq", 4n, "uint", false, false],
    ["mmr_root", 5n, ["fixed", "MmrRoot", 32], false, false],
    ["epoch", 6n, "uint", false, false],
    ["ts", 7n, "uint", false, false],
  ] },
  LedgerLine: { name: "ledger line", section: "ANCHOR0.1",
    layout: "map", fields: [
    ["offset", 1n, "uint", false, false],
    ["previous", 2n, ["fixed", "AnchorHash", 32], false, false],
    ["root", 3n, ["object", "AnchoredRoot"], false, false],
  ] },
  ChunkSummary: { name: "chunk summary", section: "4.8.3",
    layout: "array", fields: [
    ["label", 1n, ["fixed", "Label", 32], false, false],
    ["start_seq", 2n, "uint", false, false],
    ["end_seq", 3n, "uint", false, false],
    ["mmr_root_end", 4n, ["fixed", "MmrRoot", 32], false, false],
    ["entry_count", 5n, "uint", false, false],
    ["total_bytes", 6n, "uint", false, false],
    ["entry_hashes_root", 7n, ["fixed", "MmrRoot", 32], false, false],
  ] },
  CheckpointIndexEntry: { name: "checkpoint index entry", section: "4.8.3",
    layout: "array", fields: [
    ["upto_seq", 1n, "uint", false, false],
    ["mmr_root", 2n, ["fixed", "MmrRoot", 32], false, false],
    ["chunk_start", 3n, "uint", false, false],
    ["chunk_end", 4n, "uint", false, false],
    ["peaks_ref", 5n, "text", false, false],
  ] },
  PrunedHead: { name: "pruned chunk", section: "retention",
    layout: "map", fields: [
    ["label", 1n, ["fixed", "Label", 32], false, false],
    ["start_seq", 2n, "uint", false, false],
    ["end_seq", 3n, "uint", false, false],
    ["pruned_at", 4n, "uint", false, false],
    ["sizes", 5n, ["list", "uint", 0], false, false],
  ] },
  Status: { name: "status", section: "12",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["identity", 2n, ["object", "HubIdentity"], false, false],
    ["identity_sig", 3n, ["fixed", "Signature", 64], false, false],
    ["profile", 4n, ["object", "Profile"], false, false],
    ["limits", 5n, ["object", "Limits"], false, false],
    ["hub_ts", 6n, "uint", false, false],
    ["epoch", 7n, "uint", false, false],
    ["control_label", 8n, ["fixed", "Label", 32], false, false],
    ["gating", 9n, "bool", false, false],
    ["enforces", 10n, ["list", "text", 0], false, false],
    ["cannot_enforce", 11n, ["list", "text", 0], false, false],
    ["pow_salt", 12n, ["fixed", "PowSalt", 32], false, false],
    ["pow_difficulty", 13n, "uint", false, false],
    ["max_page_items", 14n, "uint", false, false],
    ["level", 15n, "text", false, false],
    ["server_version", 16n, "text", false, false],
    ["hub_log_origin", 17n, "text", true, false],
    ["memories", 18n, ["list", "text", 0], true, false],
    ["not_signing", 19n, "text", true, false],
    ["replica_of", 20n, "text", true, false],
    ["handover", 21n, ["object", "Handover"], true, false],
  ] },
  Handover: { name: "handover", section: "RESOLUTIONS P9",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["old_hub", 2n, ["fixed", "HubId", 32], false, false],
    ["new_hub", 3n, ["fixed", "HubId", 32], false, false],
    ["hub_ts", 4n, "uint", false, false],
    ["checkpoint", 5n, "bytes", false, false],
    ["attachments", 6n, "uint", false, false],
    ["attachments_hash", 7n, ["fixed", "NodeHash", 32], false, false],
    ["url", 8n, "text", false, false],
    ["sig", 9n, ["fixed", "Signature", 64], false, false],
  ] },
  AuthorizeResponse: { name: "authorize response", section: "H5",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["auth_ref", 2n, ["fixed", "AuthRef", 32], false, false],
    ["expires_at", 3n, "uint", false, false],
    ["receipt", 4n, ["object", "Receipt"], false, false],
    ["server_version", 5n, "text", true, false],
  ] },
  CapStatus: { name: "cap status", section: "H5",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["auth_ref", 2n, ["fixed", "AuthRef", 32], false, false],
    ["issued_at", 3n, "uint", false, false],
    ["known", 4n, "bool", false, false],
    ["expires_at", 5n, "uint", true, false],
    ["issuer_pk", 6n, ["fixed", "VerifyKey", 32], true, false],
    ["subject_pk", 7n, ["fixed", "ClientId", 32], true, false],
    ["server_version", 8n, "text", true, false],
  ] },
  CheckpointsResponse: { name: "checkpoints response", section: "H19",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["checkpoints", 2n, ["list", ["object", "Checkpoint"], 0], false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  RetentionResponse: { name: "retention response", section: "COMP0.1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["chunks", 2n, "uint", false, false],
    ["entries", 3n, "uint", false, false],
    ["server_version", 4n, "text", true, false],
  ] },
  OkResponse: { name: "ok response", section: "spec-1 §16",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["ok", 2n, "bool", false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  AttachmentResponse: { name: "attachment response", section: "H17",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["coid", 2n, ["fixed", "Coid", 32], false, false],
    ["stored", 3n, "bool", false, false],
    ["server_version", 4n, "text", true, false],
  ] },
  SubmitRequest: { name: "submit request", section: "10.4.1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["msg", 2n, ["object", "Msg"], false, false],
  ] },
  SubmitResponse: { name: "submit response", section: "10.4.1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["receipt", 2n, ["object", "Receipt"], false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  StreamResponse: { name: "stream response", section: "10.4.2",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["label", 2n, ["fixed", "Label", 32], false, false],
    ["from_seq", 3n, "uint", false, false],
    ["to_seq", 4n, "uint", true, false],
    ["items", 5n, ["list", ["object", "StreamItem"], 0], false, false],
    ["next_cursor", 6n, "uint", true, false],
    ["mmr_proof", 7n, ["object", "MmrProof"], true, false],
    ["server_version", 8n, "text", true, false],
  ] },
  StreamItem: { name: "stream item", section: "10.4.2",
    layout: "map", fields: [
    ["stream_seq", 1n, "uint", false, false],
    ["msg", 2n, ["object", "Msg"], false, false],
    ["receipt", 3n, ["object", "Receipt"], true, false],
  ] },
  ControlResponse: { name: "control response", section: "H5",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["label", 2n, ["fixed", "Label", 32], false, false],
    ["from_seq", 3n, "uint", false, false],
    ["to_seq", 4n, "uint", true, false],
    ["items", 5n, ["list", ["object", "ControlItem"], 0], false, false],
    ["next_cursor", 6n, "uint", true, false],
    ["mmr_proof", 7n, ["object", "MmrProof"], true, false],
    ["server_version", 8n, "text", true, false],
  ] },
  ControlItem: { name: "control item", section: "H5",
    layout: "map", fields: [
    ["stream_seq", 1n, "uint", false, false],
    ["msg", 2n, ["object", "CapToken"], false, false],
    ["receipt", 3n, ["object", "Receipt"], true, false],
  ] },
  ReceiptResponse: { name: "receipt response", section: "10.4.3",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["receipt", 2n, ["object", "Receipt"], false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  ProofResponse: { name: "proof response", section: "10.4.4",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["mmr_proof", 2n, ["object", "MmrProof"], false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  CheckpointResponse: { name: "checkpoint response", section: "10.4.5",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["checkpoint", 2n, ["object", "Checkpoint"], false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  ConsistencyResponse: { name: "consistency response", section: "B11",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["mmr_consistency", 2n, ["object", "MmrConsistency"], false, false],
    ["server_version", 3n, "text", true, false],
  ] },
  HubProofResponse: { name: "hub log proof response", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["head", 2n, ["object", "LabelHead"], false, false],
    ["index", 3n, "uint", false, false],
    ["proof", 4n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["checkpoint", 5n, "bytes", false, false],
    ["server_version", 6n, "text", true, false],
  ] },
  HubConsistencyResponse: { name: "hub log consistency response", section: "RESOLUTIONS P1",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["old_size", 2n, "uint", false, false],
    ["new_size", 3n, "uint", false, false],
    ["proof", 4n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["checkpoint", 5n, "bytes", false, false],
    ["server_version", 6n, "text", true, false],
  ] },
  ErrorEnvelope: { name: "error", section: "10.6",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["code", 2n, ["word", "Code", ["E.FORMAT", "E.SIZE", "E.SIG", "E.CAP", "E.AUTH", "E.RATE", "E.SEQ", "E.TIME", "E.BAD_REQUEST", "E.UNAUTHORIZED", "E.FORBIDDEN", "E.NOT_FOUND", "E.CONFLICT", "E.LIMIT", "E.UNAVAILABLE", "E.VERSION"]], false, false],
    ["message", 3n, "text", false, false],
    ["detail", 4n, ["object", "ErrorDetail"], true, false],
    ["retry_after", 5n, "uint", true, false],
    ["request_id", 6n, "text", true, false],
  ] },
  ErrorDetail: { name: "error.detail", section: "10.6",
    layout: "map", fields: [
    ["stage", "stage", ["word", "Stage", ["prefilter", "structural", "auth", "commit"]], true, false],
    ["detail_enum", "detail_enum", "text", true, false],
    ["field", "field", "text", true, false],
    ["expected", "expected", "text", true, false],
    ["actual", "actual", "text", true, false],
    ["max_allowed", "max_allowed", "uint", true, false],
    ["label", "label", ["fixed", "Label", 32], true, false],
    ["stream_seq", "stream_seq", "uint", true, false],
  ] },
  PartTrailer: { name: "part trailer", section: "RESOLUTIONS P6",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["number", 2n, "uint", false, false],
    ["header", 3n, ["object", "BundleHeader"], false, false],
    ["signature", 4n, ["fixed", "Signature", 64], false, false],
  ] },
  BundleHeader: { name: "bundle header", section: "RESOLUTIONS P6",
    layout: "map", fields: [
    ["kind", 1n, ["one", ["veen-bundle"], 0], false, false],
    ["ver", 2n, ["one", [1n], 2], false, false],
    ["prev_bundle_id", 3n, ["fixed", "BundleId", 32], false, false],
    ["prev_in_label", 4n, ["fixed", "BundleId", 32], false, false],
    ["identity", 5n, ["object", "HubIdentity"], false, false],
    ["profile", 6n, ["object", "Profile"], false, false],
    ["stream", 7n, "text", false, false],
    ["epoch", 8n, "uint", false, false],
    ["label", 9n, ["fixed", "Label", 32], false, false],
    ["from_seq", 10n, "uint", false, false],
    ["to_seq", 11n, "uint", false, false],
    ["from_ts", 12n, "uint", false, false],
    ["to_ts", 13n, "uint", false, false],
    ["counts", 14n, ["object", "BundleCounts"], false, false],
    ["root_before", 15n, ["fixed", "MmrRoot", 32], false, false],
    ["peaks_before", 16n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["root_after", 17n, ["fixed", "MmrRoot", 32], false, false],
    ["checkpoint", 18n, "bytes", false, false],
    ["attachments", 19n, ["word", "AttachmentRule", ["opened", "omitted"]], false, false],
    ["bridge_id", 20n, ["fixed", "ClientId", 32], false, false],
    ["exported_at", 21n, "uint", false, false],
    ["parts", 22n, ["list", ["object", "PartRow"], 0], false, false],
    ["head", 23n, ["object", "HeadProof"], true, false],
    ["origin", 24n, "text", true, false],
  ] },
  BundleCounts: { name: "bundle counts", section: "RESOLUTIONS P6",
    layout: "array", fields: [
    ["events", 1n, "uint", false, false],
    ["event_bytes", 2n, "uint", false, false],
    ["attachments", 3n, "uint", false, false],
    ["attachment_bytes", 4n, "uint", false, false],
    ["unopened", 5n, "uint", false, false],
  ] },
  PartRow: { name: "part row", section: "RESOLUTIONS P6",
    layout: "array", fields: [
    ["first_seq", 1n, "uint", false, false],
    ["last_seq", 2n, "uint", false, false],
    ["attachments", 3n, "uint", false, false],
    ["index_size", 4n, "uint", false, false],
    ["size", 5n, "uint", false, false],
    ["digest", 6n, ["fixed", "PartDigest", 32], false, false],
  ] },
  HeadProof: { name: "head proof", section: "RESOLUTIONS P6",
    layout: "map", fields: [
    ["head", 1n, ["object", "LabelHead"], false, false],
    ["index", 2n, "uint", false, false],
    ["proof", 3n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["consistency", 4n, ["object", "MmrConsistency"], true, false],
  ] },
  PartIndex: { name: "part index", section: "RESOLUTIONS P6",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["peaks", 2n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["hub_ts", 3n, "uint", false, false],
    ["offsets", 4n, ["list", "uint", 0], false, false],
    ["attachments", 5n, ["list", ["object", "IndexedAttachment"], 0], false, false],
    ["unopened", 6n, "uint", false, false],
  ] },
  IndexedAttachment: { name: "indexed attachment", section: "RESOLUTIONS P6",
    layout: "array", fields: [
    ["coid", 1n, ["fixed", "Coid", 32], false, false],
    ["offset", 2n, "uint", false, false],
    ["size", 3n, "uint", false, false],
  ] },
  HubHead: { name: "exported hub head", section: "ADR 0014",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["head", 2n, ["object", "LabelHead"], false, false],
    ["index", 3n, "uint", false, false],
    ["proof", 4n, ["list", ["fixed", "NodeHash", 32], 0], false, false],
    ["checkpoint", 5n, "bytes", false, false],
    ["consistency", 6n, ["object", "MmrConsistency"], true, false],
  ] },
  HubManifest: { name: "hub export", section: "ADR 0014",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["hub_id", 2n, ["fixed", "HubId", 32], false, false],
    ["labels", 3n, "uint", false, false],
    ["size", 4n, "uint", false, false],
  ] },
  PayloadHeader: { name: "payload_hdr", section: "4.5",
    layout: "map", fields: [
    ["schema", 1n, ["fixed", "SchemaId", 32], false, false],
    ["parent_id", 2n, ["fixed", "LeafHash", 32], true, false],
    ["att_root", 3n, ["fixed", "AttRoot", 32], true, false],
    ["cap_ref", 4n, ["fixed", "AuthRef", 32], true, false],
    ["expires_at", 5n, "uint", true, false],
  ] },
  Attached: { name: "attached", section: "4.6",
    layout: "map", fields: [
    ["ver", 1n, ["one", [1n], 2], false, false],
    ["schema", 2n, ["fixed", "SchemaId", 32], false, false],
    ["body", 3n, "bytes", false, false],
    ["attachments", 4n, ["list", ["object", "AttachmentRef"], 0], false, false],
  ] },
  AttachmentRef: { name: "attachment_ref", section: "4.6",
    layout: "map", fields: [
    ["coid", 1n, ["fixed", "Coid", 32], false, false],
    ["size", 2n, "uint", false, false],
  ] },
};

/** What a file may hold, in the order in which it is tried. */
export const KINDS: readonly ObjectName[] = [
  "Receipt",
  "Checkpoint",
  "Msg",
  "MmrProof",
  "MmrConsistency",
  "CapToken",
  "IdentityCard",
  "HubIdentity",
  "NextIdentity",
  "Equivocation",
  "HubEvidence",
  "HubLogFork",
  "LabelFork",
  "LogContradiction",
  "ResultFile",
  "Transcript",
  "LabelHead",
  "Keystore",
  "Secrets",
  "KeyFile",
  "PowCookie",
  "Manifest",
  "IndexRow",
  "PrunedPayload",
  "AuthorizePayload",
  "Fork",
  "ForkCut",
  "Registry",
  "Profile",
  "LabelRecord",
  "EpochsRecord",
  "HeldTokens",
  "HubCheckpointRecord",
  "CheckpointBinding",
  "Anchor",
  "Prune",
  "AnchoredRoot",
  "LedgerLine",
  "ChunkSummary",
  "CheckpointIndexEntry",
  "PrunedEntry",
  "PrunedHead",
  "Status",
  "AuthorizeResponse",
  "CapStatus",
  "CheckpointsResponse",
  "RetentionResponse",
  "OkResponse",
  "AttachmentResponse",
  "SubmitRequest",
  "SubmitResponse",
  "StreamResponse",
  "ControlResponse",
  "ReceiptResponse",
  "ProofResponse",
  "CheckpointResponse",
  "ConsistencyResponse",
  "HubProofResponse",
  "HubConsistencyResponse",
  "ErrorEnvelope",
];
