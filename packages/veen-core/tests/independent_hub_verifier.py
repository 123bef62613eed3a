"""The second verifier, continued: hub evidence, from P1, P2, RFC 6962 and the pages of C2SP."""

from base64 import b64decode, b64encode
from hashlib import sha256

import cbor2
from independent_verifier import (
    ONE,
    PROOF,
    RECEIPT,
    UINT,
    Refused,
    decode,
    fits,
    need,
    signed,
    tagged,
    verify_inclusion,
    verify_receipt,
)

HEAD = (ONE, 32, UINT, 32, UINT)  # P1: label, upto_seq, mmr_root, hub_ts
HUB_KEY = {1: 32, 2: 32, 3: UINT}  # §8.4; valid_until (4) and endorsement (5) may follow
EVIDENCE = {1: str, 2: ONE, 3: {1: ONE, 2: 32, 3: [dict], 4: str}, 4: RECEIPT}  # P1
EVIDENCE |= {5: PROOF, 6: HEAD, 7: UINT, 8: [32], 9: bytes}  # origin (10) may follow


def verify_identity(identity: dict, pinned: bytes) -> list:  # §8.4, B13: [(hub_pk, valid_from, valid_until)]
    need(identity[2] == pinned, "hub-identity is another hub's")
    need(identity[4] in ("data-directory", "fingerprint", "certificate"), "hub-identity.anchoring")
    keys: list = []
    for key in identity[3]:
        shapes = [HUB_KEY | more for more in ({}, {4: UINT}, {5: 64}, {4: UINT, 5: 64})]
        need(any(fits(key, shape) for shape in shapes), "hub_key has another shape")
        hub_pk, start, until = key[2], key[3], key.get(4, 2**64)
        need(key[1] == tagged("veen/key-id", hub_pk) and start < until, "hub_key.key_id or its times")
        need(hub_pk not in [before[0] for before in keys], "a key is listed twice")
        if keys:
            need(5 in key and start > keys[-1][1], "hub_key is not endorsed, or out of order")
            digest = tagged("veen/hub-key", pinned + hub_pk + start.to_bytes(8, "big"))
            signed(keys[-1][0], digest, key[5], "hub_key.endorsement")
        else:
            need(tagged("veen/hub-id", hub_pk) == pinned and 5 not in key, "hub_id is not the first key's")
        keys.append((hub_pk, start, until))
    need(keys, "hub-identity has no keys")
    return keys


def unbase64(text: str) -> bytes:  # RFC 4648 §4, in its one form
    data = b64decode(text, validate=True)
    need(b64encode(data).decode() == text, "base64 is not canonical")
    return data


def open_note(
    data: bytes,
) -> tuple[str, list]:  # C2SP signed-note: text; name, key id, signature of each line
    try:
        text, empty, lines = data.decode().rpartition("\n\n")
        need(empty and lines.endswith("\n") and len(data) <= 131_072, "note has no signatures")
        need(not any(char < " " for char in data.decode().replace("\n", "")), "note has control characters")
        parts = [line.split(" ") for line in lines[:-1].split("\n")]
        need(all(len(part) == 3 and part[0] == "\u2014" for part in parts), "note has another line")
        found = [(name, (value := unbase64(line))[:4], value[4:]) for _, name, line in parts]
    except ValueError:
        raise Refused("note is not UTF-8 or not base64") from None
    need(all(name and "+" not in name and not any(map(str.isspace, name)) for name, *_ in found), "key name")
    need(all(signature for *_, signature in found) and len(found) <= 64, "note has an empty signature")
    return text + "\n", found


def signers_of(note: tuple[str, list], keys: list[tuple[str, bytes]], kind: int) -> set[bytes]:
    """Return the keys that signed; a signature of one of them that does not verify spoils the note."""
    found = set()
    for name, key in keys:
        key_id = sha256(name.encode() + b"\n" + bytes([kind]) + key).digest()[:4]
        for value in [line[2] for line in note[1] if line[:2] == (name, key_id)]:
            time, signature, message = b"", value, note[0]
            if kind == 4:  # C2SP tlog-cosignature
                time, signature = value[:8], value[8:]
                need(len(time) == 8 and time[0] < 128, "cosignature without a time before 2^63")
                message = f"cosignature/v1\ntime {int.from_bytes(time, 'big')}\n{message}"
            signed(key, message.encode(), signature, f"the signature of {name}")
            found.add(key)
    return found


def tree_root(leaf: bytes, index: int, size: int, path: list[bytes]) -> bytes:  # RFC 6962 §2.1.1, backwards
    need(index < size and bool(path) == (size > 1), "the proof has another length")
    if size == 1:
        return leaf
    k = 1 << (size - 1).bit_length() - 1
    if index < k:
        return sha256(b"\x01" + tree_root(leaf, index, k, path[:-1]) + path[-1]).digest()
    return sha256(b"\x01" + path[-1] + tree_root(leaf, index - k, size - k, path[:-1])).digest()


def verify_hub_evidence(
    wire: bytes, pinned: bytes, witnesses: list[tuple[str, bytes]], quorum: int, logs: list[str]
) -> list:
    """Return what the receipt says; ``quorum`` witnesses must cosign, ``logs`` are allowed names (P1, P2)."""
    item = decode(wire, "hub evidence", EVIDENCE, EVIDENCE | {10: str})
    need(item[1] == "veen-hub-evidence", "hub evidence is of another kind")
    keys, receipt, (_, label, upto_seq, root, hub_ts) = verify_identity(item[3], pinned), item[4], item[6]
    active = [hub_pk for hub_pk, start, until in keys if start <= receipt[5] < until]
    signers = []
    for hub_pk in active:
        try:
            signers.append(verify_receipt(cbor2.dumps(receipt), hub_pk))
        except Refused:
            continue
    need(
        signers and label == receipt[1] and hub_ts >= receipt[5], "RECEIPT is not this head's, or not signed"
    )
    at_head = (receipt[4], receipt[5]) if receipt[2] == upto_seq else (root, hub_ts)
    need(at_head == (root, hub_ts), "RECEIPT and head contradict each other")
    verify_inclusion(cbor2.dumps(item[5]), root, receipt[2], receipt[3], upto_seq)
    note, name = open_note(item[9]), item.get(10, f"veen.hub/{pinned.hex()}")
    lines = note[0].split("\n")
    need(len(lines) > 3 and all(lines[:-1]), "the note is not a checkpoint")
    origin, size, tree = lines[:3]
    need(origin == name and name in (logs or [f"veen.hub/{pinned.hex()}"]), "the log has another name")
    need(
        len(size) < 20 and size.isascii() and size.isdigit() and str(int(size)) == size,
        "the size is not decimal",
    )
    leaf = sha256(b"\x00" + cbor2.dumps(item[6])).digest()
    need(
        b64encode(tree_root(leaf, item[7], int(size), item[8])).decode() == tree, "the head is not in the log"
    )
    current = [(name, hub_pk) for hub_pk, _, until in keys if hub_ts < until]
    need(signers_of(note, current, 1), "no key of the hub signed the hub checkpoint")
    need(len(signers_of(note, witnesses, 4)) >= quorum, "too few witnesses cosigned")
    return signers[0]
