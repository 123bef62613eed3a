"""Transparency logs in the field's own form: RFC 6962 trees and the formats of C2SP.

- ``tree``: the Merkle tree of RFC 6962, its proofs and their verification;
- ``tiles``: the paths and contents of tiles and entry bundles (C2SP tlog-tiles);
- ``note``: signed notes and verifier keys (C2SP signed-note, tlog-cosignature);
- ``tree_head``: the text of a log's checkpoint (C2SP tlog-checkpoint);
- ``add_checkpoint``: what a log sends to a witness (C2SP tlog-witness);
- ``policy``: which logs and how many witnesses must sign (C2SP tlog-policy).

Nothing here knows about VEEN: a witness can watch any log, and any witness can watch a hub. ``hub_log`` says
what a hub puts into its tree.
"""
