/** One sentence for each kind of evidence, for a reader who has never seen VEEN. */

const SENTENCES: Readonly<Record<string, string>> = {
  RECEIPT: "The hub's signed promise that one message is in its log, at one place.",
  CHECKPOINT: "The hub's signature over everything that a label's log holds up to one message.",
  "hub checkpoint": "The hub's signature over its whole log, with the cosignatures of witnesses.",
  "hub evidence":
    "One file that proves where a message is in the log of a hub: from the message to the witnesses.",
  "hub-identity": "The keys of a hub, each endorsed by the one before. Their first key fixes the hub's id.",
  mmr_proof: "The hashes that lead from one message to the root of its log.",
  mmr_consistency: "The hashes that show that an earlier log is the start of a later one.",
  equivocation: "Two receipts for one place that contradict each other: proof that a hub lied.",
  "hub log fork": "Two signed states of a hub's log that contradict each other: proof that a hub lied.",
  "label fork": "Two signed statements about one label that contradict each other: proof that a hub lied.",
  "log contradiction": "Signed states of a log that cannot all be true, as a witness kept them.",
  MSG: "One message: sealed for its readers, signed by its writer.",
  "log entry": "One message of a log, together with the hub's receipt for it.",
  cap_token: "A permission to write to named streams, signed by its issuer.",
  identity_card: "The public keys of a person or service, signed by their owner.",
  pow_cookie: "The answer to a hub's proof-of-work puzzle.",
  bundle: "A range of a stream that crossed from one hub to another, with everything that proves it.",
  "part of a bundle": "One file of a bundle; a bundle verifies when all its parts are here.",
  export: "A range of a log as a folder that verifies by itself.",
  "query result": "Rows that a query service returned, with what proves them.",
  "witness policy": "Which witnesses count, and how many of them must agree.",
  "export manifest": "The list of files of an export. Give the whole folder.",
};

export function sentenceFor(kind: string): string {
  return SENTENCES[kind] ?? "A file of VEEN.";
}

/** Replace what `veen verify` says about its options by what this page has. */
export function hintFor(why: string): string | null {
  if (why.includes("with this id"))
    return "If that is the hub you mean, enter this id under “Which hub do you trust?”.";
  if (why.includes("give --trust")) return "Enter the hub's id under “Which hub do you trust?”.";
  if (why.includes("hub-identity.cbor")) return "Add the file hub-identity.cbor of the hub.";
  if (why.includes("give the receipt") || why.includes("give receipts"))
    return "Add that file to the files here.";
  if (why.includes("--witnesses")) return "Add a witness policy under “Which hub do you trust?”.";
  return null;
}
