"""Every published vector, checked with veen_core.

``vectors/published/`` is the published file, one vector a file. ``CHECKS`` lists them in the order of
publication; put together again they are the published bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from veen_core import cap, cbor, checkpoint, msg, receipt
from veen_core.attachment import att_root
from veen_core.cap import CapToken, Rate
from veen_core.checkpoint import Checkpoint
from veen_core.ciphertext import Binding, leaf_hash
from veen_core.hashing import H, Ht, u64be
from veen_core.ids import (
    AttRoot,
    AuthRef,
    ClientId,
    ClientSeq,
    Coid,
    CtHash,
    Epoch,
    HubPk,
    Label,
    LeafHash,
    MmrRoot,
    ProfileId,
    SchemaId,
    Signature,
    StreamId,
    StreamSeq,
    UnixTime,
)
from veen_core.keys import SigningKey, SigningSeed
from veen_core.mmr import Mmr, node_hash
from veen_core.msg import Msg
from veen_core.payload import PayloadHeader
from veen_core.pow import PowCookie, verify_cookie, work_of
from veen_core.profile import PROFILES, Profile
from veen_core.proof import MmrProof, prove_inclusion, verify_inclusion
from veen_core.receipt import Receipt
from veen_core.validity import active_at, until
from veen_core.wire import Wire, text_map

PUBLISHED = Path(__file__).parent / "vectors" / "published"
SHA256_OF_PUBLISHED_JSON = "af01c27aa61742a9105f0b7d062f9f27df4133fc0a7e1f92a806ce84de2bc5f2"

BELONG_TO_OVERLAYS = ("lww_precedence", "wallet_transfer")
"""Rules of a fold, which only veen-overlays implements; their own tests check them."""

Inputs = dict[str, Any]


def spell(text: str) -> bytes:
    """``"01*32"`` is byte 01 thirty-two times; anything else is hex."""
    byte, times, count = text.partition("*")
    return bytes.fromhex(byte) * int(count) if times else bytes.fromhex(text)


def canonical_json(value: object) -> str:
    """Sorted keys, no insignificant whitespace (profiles.md, query 3.1)."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


# --- hashes and derivations


def check_label(inputs: Inputs, expected: str) -> None:
    # The routing key of this vector is a short text, so the function's own formula is spelt out.
    routing = inputs["routing_key_utf8"].encode()
    derived = Ht("veen/label", routing + spell(inputs["stream_id"]) + u64be(inputs["epoch"]))
    assert derived.hex() == expected
    assert inputs["epoch"] == int(inputs["epoch_hex"], 16)


def check_plain_hash(inputs: Inputs, expected: str) -> None:
    assert H(inputs["data_utf8"].encode()).hex() == expected


def tagged(tag: str, *names: str) -> Callable[[Inputs, str], None]:
    def check(inputs: Inputs, expected: str) -> None:
        assert Ht(tag, b"".join(spell(inputs[name]) for name in names)).hex() == expected

    return check


def check_operation_id(inputs: Inputs, expected: str) -> None:
    assert msg.operation_id(LeafHash(spell(inputs["leaf_hash"]))).hex() == expected


def realm_id(name: str) -> bytes:
    return Ht("id/realm", name.encode())


def check_realm_id(inputs: Inputs, expected: str) -> None:
    assert realm_id(inputs["name"]).hex() == expected


def check_group_id(inputs: Inputs, expected: str) -> None:
    org_id = Ht("id/org", spell(inputs["org_pk"]))
    assert Ht("id/group", org_id + inputs["name"].encode()).hex() == expected


def check_identity_streams(inputs: Inputs, expected: dict[str, str]) -> None:
    pk, realm = spell(inputs["pk"]), realm_id(inputs["realm"])
    derived = {
        "principal": Ht("id/stream/principal", pk),
        "ctx": Ht("id/stream/ctx", Ht("id/ctx", pk + realm) + realm),
        "org": Ht("id/stream/org", Ht("id/org", pk)),
        "handle_ns": Ht("id/stream/handle", realm),
    }
    assert {name: value.hex() for name, value in derived.items()} == expected


def check_wallet_id(inputs: Inputs, expected: dict[str, str]) -> None:
    realm = realm_id(inputs["realm"])
    ctx = Ht("id/ctx", spell(inputs["principal_pk"]) + realm)
    wallet = Ht("wallet/id", realm + ctx + inputs["currency"].encode())
    assert wallet.hex() == expected["wallet_id"]
    assert Ht("wallet/stream", wallet).hex() == expected["stream_id_wallet"]


def check_profile_id(inputs: Inputs, expected: str) -> None:
    assert Profile(**inputs) == PROFILES["rotating"]
    assert PROFILES["rotating"].profile_id.hex() == expected


# --- codecs


@text_map("paid.operation.v1", section="spec-3")
@dataclass(frozen=True, slots=True, kw_only=True)
class PaidOperation(Wire):
    """As an overlay declares it, which is what the vector is about (B2)."""

    operation_type: str
    operation_args: Any
    payer_account: StreamId
    payee_account: StreamId
    amount: int
    currency_code: str
    operation_reference: StreamId | None = None
    parent_operation_id: StreamId | None = None
    ttl_seconds: int | None = None
    metadata: Any | None = None


def check_paid_operation(inputs: Inputs, expected: str) -> None:
    operation = PaidOperation.from_json(json.dumps(inputs["fields"]))
    assert operation.encode().hex() == expected
    assert PaidOperation.decode(bytes.fromhex(expected)) == operation


def check_digest_json(inputs: Inputs, expected: str) -> None:
    assert canonical_json(inputs["digest"]) == expected


def check_rows_hash(inputs: Inputs, expected: str) -> None:
    assert H(canonical_json(inputs["rows"]).encode()).hex() == expected


def check_bstr32_prefix(_inputs: Inputs, expected: str) -> None:
    assert cbor.encode(bytes(32)).hex() == expected + bytes(32).hex()


def check_header(inputs: Inputs, expected: str) -> None:
    def field(key: int) -> bytes | None:
        return spell(inputs[str(key)]) if str(key) in inputs else None

    schema, parent, root, cap_ref = (field(key) for key in range(1, 5))
    assert schema is not None
    header = PayloadHeader(
        schema=SchemaId(schema),
        parent_id=LeafHash(parent) if parent else None,
        att_root=AttRoot(root) if root else None,
        cap_ref=AuthRef(cap_ref) if cap_ref else None,
        expires_at=UnixTime(inputs["5"]),
    )
    assert header.encode().hex() == expected
    assert PayloadHeader.decode(bytes.fromhex(expected)) == header


# --- messages, receipts, checkpoints


def msg_of(inputs: Inputs, client_id: bytes, sig: bytes) -> Msg:
    return Msg(
        profile_id=ProfileId(spell(inputs["profile_id"])),
        label=Label(spell(inputs["label"])),
        client_id=ClientId(client_id),
        client_seq=ClientSeq(inputs["client_seq"]),
        prev_ack=StreamSeq(inputs["prev_ack"]),
        auth_ref=AuthRef(spell(inputs["auth_ref"])) if inputs["auth_ref"] else None,
        ct_hash=CtHash(spell(inputs["ct_hash"])),
        ciphertext=spell(inputs["ciphertext"]),
        sig=Signature(sig),
    )


def unsigned(wire: bytes, items: int, signatures: int = 1) -> str:
    """An encoded array without its trailing 64-byte signatures."""
    return (bytes([0x80 + items]) + wire[1 : len(wire) - 66 * signatures]).hex()


def check_signing_bytes_of_msg(inputs: Inputs, expected: dict[str, str]) -> None:
    wire = msg_of(inputs, spell(inputs["client_id"]), bytes(64)).encode()
    assert unsigned(wire, 9) == expected["cbor"]
    assert msg.signing_digest(wire).hex() == expected["digest_Ht_veen_sig"]


def check_signed_msg(inputs: Inputs, expected: dict[str, str]) -> None:
    key = SigningKey(SigningSeed(spell(inputs["signing_seed"])))
    assert key.public.hex() == inputs["client_id"]
    signed = msg_of(inputs, key.public, spell(expected["sig"]))
    wire = signed.encode()
    assert wire.hex() == expected["msg_cbor"]
    assert unsigned(wire, 9) == expected["signing_cbor"]
    assert msg.signing_digest(wire).hex() == expected["digest"]
    assert key.sign(msg.signing_digest(wire)) == signed.sig
    assert Msg.decode(wire) == signed
    msg.verify_signature(signed, wire)


def check_leaf_hash(inputs: Inputs, expected: str) -> None:
    leaf = leaf_hash(
        Label(spell(inputs["label"])),
        ProfileId(spell(inputs["profile_id"])),
        CtHash(spell(inputs["ct_hash"])),
        ClientId(spell(inputs["client_id"])),
        ClientSeq(inputs["client_seq"]),
    )
    assert leaf.hex() == expected


def check_body_nonce(inputs: Inputs, expected: str) -> None:
    binding = Binding(
        profile_id=ProfileId(bytes(32)),  # not part of the nonce
        label=Label(spell(inputs["label"])),
        client_id=ClientId(spell(inputs["client_id"])),
        client_seq=ClientSeq(inputs["client_seq"]),
        prev_ack=StreamSeq(inputs["prev_ack"]),
    )
    assert binding.nonce.hex() == expected


def check_signing_bytes_of_receipt(inputs: Inputs, expected: dict[str, str]) -> None:
    unsigned_receipt = Receipt(
        label=Label(spell(inputs["label"])),
        stream_seq=StreamSeq(inputs["stream_seq"]),
        leaf_hash=LeafHash(spell(inputs["leaf_hash"])),
        mmr_root=MmrRoot(spell(inputs["mmr_root"])),
        hub_ts=UnixTime(inputs["hub_ts"]),
    )
    assert unsigned(unsigned_receipt.encode(), 6) == expected["cbor"]
    assert receipt.signing_digest(unsigned_receipt.encode()).hex() == expected["digest"]


def checkpoint_of(inputs: Inputs) -> Checkpoint:
    return Checkpoint(
        label_prev=Label(spell(inputs["label_prev"])),
        label_curr=Label(spell(inputs["label_curr"])),
        upto_seq=StreamSeq(inputs["upto_seq"]),
        mmr_root=MmrRoot(spell(inputs["mmr_root"])),
        epoch=Epoch(inputs["epoch"]),
    )


def check_signing_bytes_of_checkpoint(inputs: Inputs, expected: dict[str, str]) -> None:
    bare = checkpoint_of(inputs)
    witnessed = Checkpoint.decode(
        b"\x88" + bare.encode()[1:] + cbor.encode([spell(inputs["witness_sigs"][0].split()[0])])
    )
    assert witnessed.witness_sigs == (Signature(bytes([0x35]) * 64),)
    assert unsigned(bare.encode(), 6) == expected["cbor"]
    assert checkpoint.signing_digest(bare).hex() == expected["digest"]
    assert checkpoint.signing_digest(witnessed).hex() == expected["digest"]


def check_signed_checkpoint(inputs: Inputs, expected: dict[str, str]) -> None:
    key = SigningKey(SigningSeed(spell(inputs["hub_seed"])))
    assert key.public.hex() == inputs["hub_pk"]
    signed = checkpoint.sign_checkpoint(key, checkpoint_of(inputs))
    assert checkpoint.signing_digest(signed).hex() == expected["digest"]
    assert signed.hub_sig.hex() == expected["hub_sig"]
    assert signed.encode().hex() == expected["checkpoint_cbor_7"]
    checkpoint.verify_signature(signed, HubPk(key.public))


# --- trees


def check_append_proofs(_inputs: Inputs, expected: list[dict[str, Any]]) -> None:
    log = Mmr()
    nodes: dict[tuple[int, int], bytes] = {}

    def lookup(height: int, index: int) -> bytes:
        return nodes[height, index]

    for row in expected:
        leaf = LeafHash(bytes([row["seq"]]) * 32)
        nodes.update({(node.height, node.index): node.hash for node in log.append(leaf)})
        proof = prove_inclusion(lookup, StreamSeq(row["seq"]))
        assert log.root.hex() == row["root"]
        assert [step.sib.hex() for step in proof.path] == row["path_siblings"]
        assert [peak.hex() for peak in proof.peaks_after] == row["peaks_after"]
        assert proof.encode().hex() == row["proof_cbor"]
        verify_inclusion(MmrProof.decode(proof.encode()), log.root, log.stream_seq, leaf)
    assert [row["seq"] for row in expected] == list(range(1, 9))


def check_node(inputs: Inputs, expected: str) -> None:
    assert node_hash(spell(inputs["left"]), spell(inputs["right"])).hex() == expected


def coids_of(inputs: Inputs) -> list[Coid]:
    return [Coid(H(text.encode())) for text in inputs["attachment_ciphertexts_utf8"]]


def check_att_root(inputs: Inputs, expected: str | dict[str, Any]) -> None:
    coids = coids_of(inputs)
    if isinstance(expected, str):
        expected = {"att_root": expected}
    assert att_root(coids).hex() == expected["att_root"]
    assert [coid.hex() for coid in coids] == expected.get("coids", [coid.hex() for coid in coids])
    assert coids[0].hex() == expected.get("coid", coids[0].hex())


# --- authority, validity, work


def check_cap_token(inputs: Inputs, expected: dict[str, Any]) -> None:
    issuer = SigningKey(SigningSeed(spell(inputs["issuer_seed"])))
    assert issuer.public.hex() == inputs["issuer_pk"]
    streams = [StreamId(spell(inputs["stream_id"]))]
    subject = ClientId(spell(inputs["subject_pk"]))
    token = cap.mint(issuer, subject, streams, inputs["ttl"], Rate(**inputs["rate"]))
    signable = token.codec.write(token)
    del signable[5]
    assert cbor.encode(signable).hex() == expected["signable_cbor_4_keys"]
    assert cap.link_digest(token, bytes(64)).hex() == expected["link0_digest"]
    assert token.sig_chain[0].hex() == expected["sig0"]
    assert token.encode().hex() == expected["token_cbor"]
    assert token.auth_ref.hex() == expected["auth_ref"]
    assert token.token_hash.hex() == expected["cap_token_hash_for_revocation"]
    again, two_link = cap.resign(issuer, token), expected["two_link"]
    assert cap.link_digest(token, token.sig_chain[0]).hex() == two_link["link1_digest"]
    assert again.sig_chain[1].hex() == two_link["sig1"]
    assert again.encode().hex() == two_link["token_cbor"]
    assert again.auth_ref.hex() == two_link["auth_ref"]
    for published in (expected, two_link):
        cap.verify_token(CapToken.decode(spell(published["token_cbor"])))


def check_revocation_window(inputs: Inputs, expected: dict[str, Any]) -> None:
    starts = UnixTime(inputs["ts"])
    ends = until(starts, inputs["ttl"])
    moments = {f"active({t})": active_at(UnixTime(t), starts, ends) for t in (9999, 10000, 10299, 10300)}
    assert moments | {"expires_at": ends} == expected


def check_cookie(inputs: Inputs, expected: bool) -> None:
    text = inputs.get("challenge_utf8")
    challenge = spell(inputs["challenge"]) if text is None else text.encode()
    cookie = PowCookie(challenge=challenge, nonce=inputs["nonce"], difficulty=inputs["difficulty"])
    assert expected is True
    verify_cookie(cookie, challenge, inputs["difficulty"])
    if "value_hex_recomputed" in inputs:
        assert Ht("veen/pow", challenge + u64be(inputs["nonce"])).hex() == inputs["value_hex_recomputed"]
        assert work_of(challenge, inputs["nonce"]) == inputs["leading_zero_bits_recomputed"]


CHECKS: dict[str, Callable[[Inputs, Any], None] | None] = {
    "label_derive": check_label,
    "realm_stream_fed_admin": tagged("veen/admin", "realm_id"),
    "realm_stream_revocation": tagged("veen/revocation", "realm_id"),
    "realm_stream_schema_meta": tagged("veen/meta-schema", "realm_id"),
    "schema_label_class": check_plain_hash,
    "schema_handle_map": check_plain_hash,
    "schema_revocation": check_plain_hash,
    "schema_op_access_grant": check_plain_hash,
    "schema_op_access_revoke": check_plain_hash,
    "schema_op_delegated_execution": check_plain_hash,
    "schema_op_agreement_definition": check_plain_hash,
    "schema_op_agreement_confirmation": check_plain_hash,
    "schema_op_state_checkpoint": check_plain_hash,
    "schema_op_federation_mirror": check_plain_hash,
    "schema_wallet_close": check_plain_hash,
    "schema_wallet_deposit": check_plain_hash,
    "schema_wallet_withdraw": check_plain_hash,
    "schema_wallet_transfer": check_plain_hash,
    "schema_wallet_unfreeze": check_plain_hash,
    "pow_cookie_accept": check_cookie,
    "pow_zero_difficulty": check_cookie,
    "paid_operation_cbor": check_paid_operation,
    "query_result_digest_canonical_json": check_digest_json,
    "cbor_bstr32_prefix": check_bstr32_prefix,
    "revocation_window": check_revocation_window,
    "lww_precedence": None,
    "wallet_transfer": None,
    "leaf_hash_manual": check_leaf_hash,
    "msg_signing_bytes_with_auth_ref": check_signing_bytes_of_msg,
    "msg_signed_no_auth_ref": check_signed_msg,
    "body_nonce": check_body_nonce,
    "receipt_signing_bytes": check_signing_bytes_of_receipt,
    "checkpoint_signing_bytes": check_signing_bytes_of_checkpoint,
    "checkpoint_signed": check_signed_checkpoint,
    "mmr_append_proofs_1_to_8": check_append_proofs,
    "mmr_node": check_node,
    "att_root_three": check_att_root,
    "att_root_two": check_att_root,
    "att_root_one": check_att_root,
    "payload_header_full_cbor": check_header,
    "payload_header_sparse_cbor": check_header,
    "cap_token_issue": check_cap_token,
    "operation_id": check_operation_id,
    "realm_id": check_realm_id,
    "principal_id": tagged("id/principal", "pk"),
    "context_id": tagged("id/ctx", "principal_pk", "realm_id"),
    "device_id": tagged("id/device", "pk"),
    "group_id": check_group_id,
    "identity_stream_ids": check_identity_streams,
    "wallet_id": check_wallet_id,
    "transfer_id": tagged("wallet/xfer", "msg_id"),
    "query_rows_hash": check_rows_hash,
    "profile_id_rotating": check_profile_id,
}
"""In the order of publication; None where only veen-overlays can check."""


@pytest.mark.parametrize("name", [name for name, check in CHECKS.items() if check])
def test_the_published_vector_is_reproduced(name: str) -> None:
    check = CHECKS[name]
    assert check is not None
    vector = json.loads((PUBLISHED / f"{name}.json").read_bytes())
    check(vector["inputs"], vector["expected"])


def test_every_file_is_checked_here_or_named_as_the_overlays() -> None:
    assert {path.stem for path in PUBLISHED.iterdir()} == set(CHECKS)
    assert tuple(name for name, check in CHECKS.items() if check is None) == BELONG_TO_OVERLAYS


def test_the_files_together_are_the_published_bytes() -> None:
    vectors = [json.loads((PUBLISHED / f"{name}.json").read_bytes()) for name in CHECKS]
    assert [vector["name"] for vector in vectors] == list(CHECKS)
    together = json.dumps(vectors, indent=1, ensure_ascii=False).encode()
    assert hashlib.sha256(together).hexdigest() == SHA256_OF_PUBLISHED_JSON
