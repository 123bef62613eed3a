/** The hub's public read calls, on the page's own origin. Answers are raw bytes: the caller verifies them. */
import type { Bytes } from "../verify/wire/bytes.ts";
import { hex } from "../verify/wire/bytes.ts";
import { readError } from "./answers.ts";
import type { AuditLog } from "./audit.ts";

const TIMEOUT_MS = 20_000;
const PROBE_TIMEOUT_MS = 5_000;
/** Largest answer that the page reads; a page of a stream has at most 8 MiB. */
export const MAX_ANSWER_BYTES = 16 * 1_024 * 1_024;
const CBOR = "application/cbor, application/cbor-seq";

/** The hub answered with an error, or not at all (`status` 0). */
export class CallError extends Error {
  readonly status: number;
  readonly code: string;
  /** `detail.stream_seq` of the envelope: where a pruned stream can be read from. */
  readonly streamSeq: number | undefined;

  constructor(message: string, status: number, code: string, streamSeq?: number) {
    super(message);
    this.status = status;
    this.code = code;
    this.streamSeq = streamSeq;
  }

  get isAbsent(): boolean {
    return this.status === 404;
  }
}

export interface Description {
  readonly served_by: "hub" | "veen console";
  readonly has_probes: boolean;
  readonly version: string;
  readonly hub: string | null;
  readonly pinned: string | null;
  readonly witness_policy: string | null;
}

export class HubCalls {
  readonly #audit: AuditLog;
  readonly #base: string;

  /** `base` is the page's origin. */
  constructor(audit: AuditLog, base = "") {
    this.#audit = audit;
    this.#base = base;
  }

  async description(): Promise<Description> {
    return JSON.parse(await this.text("/console.json")) as Description;
  }

  status(): Promise<Bytes> {
    return this.#bytes("GET", "/v1/status");
  }

  page(label: Bytes, from: number, max: number): Promise<Bytes> {
    return this.#ask("/v1/stream", { label: hex(label), from_seq: from, max_items: max, with_receipts: true });
  }

  /** The receipt at a place; 0 is the newest. */
  receipt(label: Bytes, seq: number): Promise<Bytes> {
    return this.#ask("/v1/receipt", { label: hex(label), stream_seq: seq });
  }

  proof(label: Bytes, seq: number, treeSize?: number): Promise<Bytes> {
    return this.#ask("/v1/proof", { label: hex(label), stream_seq: seq, ...(treeSize ? { tree_size: treeSize } : {}) });
  }

  checkpoint(label: Bytes): Promise<Bytes> {
    return this.#ask("/v1/checkpoint", { label: hex(label), upto_seq: 0 });
  }

  hubCheckpoint(): Promise<Bytes> {
    return this.#bytes("GET", "/log/checkpoint");
  }

  tile(path: string): Promise<Bytes> {
    return this.#bytes("GET", `/log/tile/${path}`);
  }

  hubLogProof(label: Bytes, seq?: number): Promise<Bytes> {
    return this.#ask("/v1/hublog/proof", { label: hex(label), ...(seq ? { stream_seq: seq } : {}) });
  }

  hubLogConsistency(oldSize: number): Promise<Bytes> {
    return this.#ask("/v1/hublog/consistency", { old_size: oldSize });
  }

  capStatus(authRef: string): Promise<Bytes> {
    return this.#bytes("GET", `/tooling/cap/${authRef}`);
  }

  /** A probe's answer; readiness is 503 with a reason when the hub is not ready. */
  async probe(path: "/healthz" | "/readyz" | "/metrics"): Promise<{ status: number; text: string }> {
    const response = await this.#fetch("GET", path, undefined, "*/*", AbortSignal.timeout(PROBE_TIMEOUT_MS));
    return { status: response.status, text: new TextDecoder().decode(await readAll(response)) };
  }

  async text(path: string): Promise<string> {
    return new TextDecoder().decode(await this.#bytes("GET", path, undefined, "application/json"));
  }

  /** Follow a stream: parts of a CBOR sequence as they arrive, until the hub ends it or `signal` aborts. */
  async *follow(label: Bytes, from: number, signal: AbortSignal): AsyncGenerator<Bytes> {
    const response = await this.#fetch("GET", `/v1/stream/${hex(label)}?from=${from}`, undefined, CBOR, signal);
    if (!response.ok) throw await refusal(response);
    const reader = (response.body as ReadableStream<Bytes>).getReader();
    try {
      for (;;) {
        const { done, value } = await read(reader, signal);
        if (done) return;
        yield value;
      }
    } finally {
      void reader.cancel().catch(() => undefined);
    }
  }

  #ask(path: string, fields: Readonly<Record<string, unknown>>): Promise<Bytes> {
    return this.#bytes("POST", path, JSON.stringify({ ver: 1, ...fields }));
  }

  async #bytes(method: string, path: string, body?: string, accept = CBOR): Promise<Bytes> {
    const response = await this.#fetch(method, path, body, accept, AbortSignal.timeout(TIMEOUT_MS));
    if (!response.ok) throw await refusal(response);
    return readAll(response);
  }

  async #fetch(method: string, path: string, body: string | undefined, accept: string, signal: AbortSignal) {
    const started = performance.now();
    const headers: Record<string, string> = { Accept: accept };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    try {
      const response = await fetch(this.#base + path, {
        method,
        headers,
        signal,
        ...(body === undefined ? {} : { body }),
        cache: "no-store",
        credentials: "same-origin",
        redirect: "error",
        referrerPolicy: "no-referrer",
      });
      const took = Math.round(performance.now() - started);
      this.#audit.add("request", `${method} ${path} → ${response.status} in ${took} ms`, response.ok ? "ok" : "failed");
      return response;
    } catch (error) {
      if (signal.aborted && signal.reason instanceof DOMException && signal.reason.name === "AbortError") throw error;
      this.#audit.add("request", `${method} ${path} → no answer`, "failed");
      throw new CallError(`${method} ${path}: the hub does not answer`, 0, "no answer");
    }
  }
}

/** Read the next part; a connection that breaks is a hub that does not answer. */
async function read(reader: ReadableStreamDefaultReader<Bytes>, signal?: AbortSignal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new CallError("the connection to the hub broke off", 0, "no answer");
  }
}

async function readAll(response: Response): Promise<Bytes> {
  const parts: Bytes[] = [];
  let size = 0;
  const reader = (response.body as ReadableStream<Bytes> | null)?.getReader();
  while (reader !== undefined) {
    const { done, value } = await read(reader);
    if (done) break;
    size += value.length;
    if (size > MAX_ANSWER_BYTES) {
      void reader.cancel();
      throw new CallError(`the answer has more than ${MAX_ANSWER_BYTES} bytes`, response.status, "too large");
    }
    parts.push(value);
  }
  const whole = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Read an error envelope; an answer that is none is described by its status. */
async function refusal(response: Response): Promise<CallError> {
  const found = readError(await readAll(response));
  if (found === undefined) return new CallError(`the hub answers with HTTP ${response.status}`, response.status, "");
  return new CallError(found.message, response.status, found.code, found.streamSeq);
}
