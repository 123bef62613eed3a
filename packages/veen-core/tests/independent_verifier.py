"""A second verifier, written from the specification without VEEN's code; raises ``Refused``."""

from hashlib import sha256

import cbor2
from nacl.exceptions import CryptoError
from nacl.signing import VerifyKey

ONE, BIT, UINT = range(1, 2), range(2), range(2**64)
MSG = (ONE, 32, 32, 32, UINT, UINT, 32, 32, bytes, 64)  # §4.1; auth_ref may be null
RECEIPT = (ONE, 32, UINT, 32, 32, UINT, 64)  # §4.3
CHECKPOINT = (ONE, 32, 32, UINT, 32, UINT, 64)  # §4.4; witness_sigs may follow
PROOF = {1: ONE, 2: 32, 3: [{1: BIT, 2: 32}], 4: [32]}  # §5.2
CONSISTENCY = {1: ONE, 2: UINT, 3: UINT, 4: [32], 5: [32]}  # B11
ALLOW = {1: [32], 2: UINT}  # §6; a rate may follow
TOKEN = {1: ONE, 2: 32, 3: 32, 4: ALLOW, 5: [64]}


class Refused(Exception):  # noqa: N818 - what it says
    """A rule of the specification is broken."""


def need(holds: object, what: str) -> None:
    if not holds:
        raise Refused(what)


def fits(item: object, shape: object) -> bool:
    """Whether an item has a shape: a type, bytes of a size, a range, ``[many]``, ``(fixed,)``, ``{map}``."""
    if isinstance(shape, type):
        return type(item) is shape
    if type(shape) is int:
        return type(item) is bytes and len(item) == shape
    if type(shape) is range:
        return type(item) is int and item in shape
    if type(shape) is list:
        return type(item) is list and all(fits(x, shape[0]) for x in item)
    if type(shape) is tuple:
        return type(item) is list and len(item) == len(shape) and all(map(fits, item, shape))
    keys = type(item) is dict and all(type(key) is int for key in item) and list(item)
    return keys == list(shape) and all(fits(item[key], shape[key]) for key in shape)


def decode(wire: bytes, what: str, *shapes: object) -> list | dict:
    """Decode canonical bytes of one of the shapes (§3.1, B3)."""
    try:
        item = cbor2.loads(wire)
    except (cbor2.CBORDecodeError, ValueError, TypeError):
        raise Refused(f"{what} is not CBOR") from None
    canonical = any(fits(item, shape) for shape in shapes) and cbor2.dumps(item) == wire
    need(canonical, f"{what} has another shape or is not canonical")
    return item


def tagged(tag: str, data: bytes) -> bytes:  # §3.3 Ht
    return sha256(tag.encode() + b"\x00" + data).digest()


def signed(key: bytes, digest: bytes, signature: bytes, what: str) -> None:
    try:
        VerifyKey(key).verify(digest, signature)
    except (CryptoError, ValueError):
        raise Refused(f"{what} does not verify") from None


def verify_msg(wire: bytes) -> tuple[bytes, bytes]:  # §4.1, §4.2, §14: label and leaf hash
    *fields, sig = decode(wire, "MSG", MSG, (*MSG[:6], type(None), *MSG[7:]))
    _, profile_id, label, client_id, client_seq, _, _, ct_hash, ct = fields
    need(len(wire) <= 1_048_576 and len(ct) >= 40, "MSG is too long or its ciphertext too short")
    hdr_len, body_len = (int.from_bytes(ct[at : at + 4], "big") for at in (32, 36))
    need(hdr_len <= 16_384 and body_len <= 1_048_320, "ciphertext announces too much")
    end = 40 + hdr_len + body_len
    need(len(ct) >= end and not any(ct[end:]), "ciphertext is cut, or its padding is not zero")
    need(sha256(ct).digest() == ct_hash, "ct_hash is not that of the ciphertext")
    signed(client_id, tagged("veen/sig", cbor2.dumps(fields)), sig, "MSG.sig")
    leaf = label + profile_id + ct_hash + client_id + client_seq.to_bytes(8, "big")
    return label, tagged("veen/leaf", leaf)


def verify_receipt(wire: bytes, hub_pk: bytes) -> list:  # §4.3: label, stream_seq, leaf_hash, mmr_root
    *fields, hub_sig = decode(wire, "RECEIPT", RECEIPT)
    signed(hub_pk, tagged("veen/sig", cbor2.dumps(fields)), hub_sig, "RECEIPT.hub_sig")
    return fields[1:5]


def verify_checkpoint(wire: bytes, hub_pk: bytes, witnesses: list[bytes]) -> list:
    """Return label_curr, upto_seq and mmr_root; exactly these witnesses signed, in order (§4.4, B7)."""
    item = decode(wire, "CHECKPOINT", CHECKPOINT, (*CHECKPOINT, [64]))
    sigs = [item[6], *(item[7] if len(item) == 8 else [])]
    need(len(sigs) == 1 + len(witnesses), "CHECKPOINT.witness_sigs are not those expected")
    for key, sig in zip([hub_pk, *witnesses], sigs, strict=True):
        signed(key, tagged("veen/sig", cbor2.dumps(item[:6])), sig, "a signature of CHECKPOINT")
    return item[2:5]


def root_of(peaks: list[bytes]) -> bytes:  # §5.1
    return peaks[0] if len(peaks) == 1 else tagged("veen/mmr-root", b"".join(peaks))


def verify_inclusion(wire: bytes, root: bytes, stream_seq: int, leaf_hash: bytes, size: int) -> None:
    """Verify that the leaf is at ``stream_seq`` in the tree of ``size`` leaves (§5.4, B9, B10)."""
    proof, at = decode(wire, "mmr_proof", PROOF), stream_seq - 1
    need(1 <= stream_seq <= size and proof[2] == leaf_hash, "mmr_proof is for another leaf")
    heights = [h for h in range(64) if size >> h & 1]
    own = next(h for h in heights if at >> h == (size >> h) - 1)
    need(len(proof[3]) == own and len(proof[4]) == len(heights) - 1, "mmr_proof is not minimal")
    acc, rank = leaf_hash, heights.index(own)
    for level, step in enumerate(proof[3]):
        need(step[1] == at >> level & 1, "mmr_proof.path.dir contradicts the position")
        acc = tagged("veen/mmr-node", step[2] + acc if step[1] else acc + step[2])
    peaks = [*proof[4][:rank], acc, *proof[4][rank:]]
    need(root_of(peaks) == root, "mmr_proof does not lead to the root")


def verify_consistency(wire: bytes, from_root: bytes, to_root: bytes) -> None:
    """Verify that the tree under ``from_root`` is a prefix of the one under ``to_root`` (B11)."""
    _, size, end, peaks, path = decode(wire, "mmr_consistency", CONSISTENCY).values()
    old = 1 <= size < end and len(peaks) == size.bit_count() and root_of(peaks) == from_root
    need(old, "mmr_consistency.peaks_from do not lead to the root")
    for subtree in path:
        height = min((size & -size).bit_length(), (end - size).bit_length()) - 1
        need(height >= 0, "mmr_consistency.path is too long")
        node, index, size = subtree, size >> height, size + (1 << height)
        while index & 1:  # peaks are in increasing height: the first is the neighbour to the left
            node, peaks, index = tagged("veen/mmr-node", peaks[0] + node), peaks[1:], index >> 1
        peaks = [node, *peaks]
    need(size == end and root_of(peaks) == to_root, "mmr_consistency does not lead to the root")


def verify_cap_token(wire: bytes) -> bytes:  # §6: auth_ref
    token = decode(wire, "cap_token", TOKEN, TOKEN | {4: ALLOW | {3: {1: UINT, 2: UINT}}})
    ids, chain = token[4][1], token.pop(5)
    need(ids and ids == sorted(set(ids)) and 1 <= len(chain) <= 8, "cap_token rules")
    for before, sig in zip([bytes(64), *chain[:-1]], chain, strict=True):
        signed(token[2], tagged("veen/cap-link", cbor2.dumps(token) + before), sig, "cap_token.sig_chain")
    return tagged("veen/cap", wire)


def verify_entry(wire: bytes, hub_pk: bytes) -> list:  # §4.8.1, B8, H5: what the receipt says
    need(len(wire) >= 82, "entry is too short")
    ver, flags, label, digest = wire[0], wire[1], wire[2:34], wire[50:82]
    seq, msg_len, receipt_len = (int.from_bytes(x, "big") for x in (wire[34:42], wire[42:46], wire[46:50]))
    need(ver == 1 and flags in (0, 1) and len(wire) == 82 + msg_len + receipt_len, "entry header")
    need(sha256(b"veen/entry" + wire[82:]).digest() == digest, "entry_hash")
    msg, said = wire[82 : 82 + msg_len], verify_receipt(wire[82 + msg_len :], hub_pk)
    of_token = flags and (label, tagged("veen/authorize", verify_cap_token(msg) + sha256(msg).digest()))
    need(said[:2] == [label, seq], "entry header and RECEIPT disagree")
    need((said[0], said[2]) == (of_token or verify_msg(msg)), "RECEIPT is another's")
    return said
