"""A client written from the specification alone: cbor2, nacl and the standard library, no veen code.

Usage: external_client.py PORT HUB_ID_HEX STREAM N   submits N messages, reads them back, verifies everything.
"""

import hashlib
import http.client
import struct
import sys
from typing import Any

import cbor2
import nacl.exceptions
import nacl.signing


def H(x: bytes) -> bytes:  # noqa: N802 - the specification's own name
    return hashlib.sha256(x).digest()


def Ht(tag: str, x: bytes) -> bytes:  # noqa: N802 - as above
    return H(tag.encode() + b"\0" + x)


def u64(n: int) -> bytes:
    return struct.pack(">Q", n)


def call(port: int, method: str, path: str, item: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    body = None if item is None else cbor2.dumps(item)
    connection.request(method, path, body, {"Content-Type": "application/cbor"})
    response = connection.getresponse()
    answer = cbor2.loads(response.read())
    connection.close()
    assert response.status == 200, answer
    return answer


def node(left: bytes, right: bytes) -> bytes:
    return Ht("veen/mmr-node", left + right)


def append(peaks: list[tuple[int, bytes]], leaf: bytes) -> list[tuple[int, bytes]]:
    """An MMR as a list of (height, hash), highest first (§5.1)."""
    peaks = [*peaks, (0, leaf)]
    while len(peaks) > 1 and peaks[-1][0] == peaks[-2][0]:
        (height, left), (_, right) = peaks[-2:]
        peaks = [*peaks[:-2], (height + 1, node(left, right))]
    return peaks


def fold(hashes: list[bytes]) -> bytes:
    """The root: one peak is bare, several are hashed together in increasing height (§5.1)."""
    return hashes[0] if len(hashes) == 1 else Ht("veen/mmr-root", b"".join(hashes))


def root_by_proof(proof: dict[int, Any], seq: int, size: int) -> bytes:
    """§5.4, B9, B10: climb to the leaf's own peak, put it among the others, fold."""
    running = proof[2]
    for step in proof[3]:
        running = node(step[2], running) if step[1] else node(running, step[2])
    heights = [h for h in range(64) if size >> h & 1]
    starts = {h: (size >> h + 1) << h + 1 for h in heights}
    own = next(h for h in heights if starts[h] <= seq - 1 < starts[h] + (1 << h))
    assert (len(proof[3]), len(proof[4])) == (own, len(heights) - 1)
    others = list(proof[4])
    return fold([running if h == own else others.pop(0) for h in heights])


def main(port: int, pinned: bytes, stream: str, n: int) -> None:
    status = call(port, "GET", "/v1/status")
    hub_pk = status[2][3][0][2]
    assert Ht("veen/hub-id", hub_pk) == status[2][2] == pinned
    hub = nacl.signing.VerifyKey(hub_pk)
    profile_id = Ht("veen/profile", cbor2.dumps(status[4]))
    label = Ht("veen/label", Ht("veen/routing_key", pinned) + H(stream.encode()) + u64(status[7]))
    key = nacl.signing.SigningKey(H(b"an external client"))
    client, receipts, leaves, peaks = key.verify_key.encode(), [], [], []
    for seq in range(1, n + 1):
        body = f"message {seq}".encode()
        sealed = H(body) + struct.pack(">II", 0, len(body)) + body
        fields = [1, profile_id, label, client, seq, len(receipts), None, H(sealed), sealed]
        signature = key.sign(Ht("veen/sig", cbor2.dumps(fields))).signature
        receipt = call(port, "POST", "/v1/submit", {1: 1, 2: [*fields, signature]})[2]
        hub.verify(Ht("veen/sig", cbor2.dumps(receipt[:6])), receipt[6])
        leaf = Ht("veen/leaf", label + profile_id + H(sealed) + client + u64(seq))
        peaks = append(peaks, leaf)
        assert receipt[1:4] == [label, seq, leaf]
        assert receipt[4] == fold([hash_ for _, hash_ in reversed(peaks)])
        receipts.append(receipt)
        leaves.append(leaf)
    page = call(port, "POST", "/v1/stream", {1: 1, 2: label, 3: 1, 7: True, 8: True})
    assert [item[3] for item in page[5]] == receipts
    assert root_by_proof(page[7], n, n) == receipts[-1][4]
    for seq in range(1, n + 1):
        asked = {1: 1, 2: label, 3: seq, 4: n}
        proof = call(port, "POST", "/v1/proof", asked)[2]
        assert proof[2] == leaves[seq - 1]
        assert root_by_proof(proof, seq, n) == receipts[-1][4]
    forged = [*receipts[0][:5], receipts[0][5] + 1]
    try:
        hub.verify(Ht("veen/sig", cbor2.dumps(forged)), receipts[0][6])
    except nacl.exceptions.BadSignatureError:
        sys.stdout.write(f"verified {n} messages\n")
    assert not [name for name in sys.modules if name.startswith("veen")]


if __name__ == "__main__":
    main(int(sys.argv[1]), bytes.fromhex(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
