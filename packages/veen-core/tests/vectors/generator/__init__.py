"""The generator of veen-core's own vectors: fixed keys, so that every run gives the same bytes.

``case``     what a vector is: files in ``<object>/<case>/`` or ``<object>/<case>_fail/``
``crooked``  bytes that deterministic CBOR forbids, derived from good ones (§3.1, B3)
``cast``     the fixed keys, one hub, one log
``message``  profile, derivations, payload_hdr, MSG
``sealing``  ciphertext, attachments
``log``      RECEIPT, CHECKPOINT
``proofs``   mmr_proof, mmr_consistency
``entries``  entry frame, equivocation
``chunks``   chunk summary, peaks, checkpoint index entry, pruned entry, pruned chunk
``exports``  export manifest, index row, pruned and authorize payload, registry
``identity`` cap_token, hub-identity, checkpoint-binding
``people``   identity_card, secrets, keystore
``local``    client_state, pow_cookie, limits
``api``      the envelopes of §10.4 and §10.6, in CBOR and JSON
``tooling``  status and the envelopes of tooling and attachments, in CBOR and JSON
``hub_log``  label head, the envelopes of the hub log, hub evidence
``hub_exports``  the head of an exported label, the manifest of an export of a whole hub
``forks``    evidence of a fork, in the hub log and of a label
``handovers``  the handover of a hub to its successor, and the request for it
"""
