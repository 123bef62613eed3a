"""Compare roots in files with the roots that a client has verified before (core §9 Resync).

A client keeps the peaks of its verified prefix, not every root. So a root can be compared if the client has
verified a tree of the same size, or if a verified consistency proof leads from one to the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from veen_cli.evidence.verdicts import contradiction
from veen_cli.frame.output import plural
from veen_cli.identity.verified_roots import ClientKnowledge, KnownRoot
from veen_core.errors import VerificationError
from veen_core.export import Manifest
from veen_core.ids import Label, MmrRoot, StreamSeq, UnixTime
from veen_core.receipt import Receipt
from veen_core.tlog.tree_head import SignedHead


class ClientComparison:
    """What one client has verified at one hub, and the consistency proofs that lead to it."""

    def __init__(
        self,
        client: str,
        known: Iterable[ClientKnowledge],
        hub_checkpoint: SignedHead | None,
        *,
        required: bool,
    ) -> None:
        """``required``: a root that cannot be compared is a skipped check, and not only a remark."""
        self.client = client
        self.hub_checkpoint = hub_checkpoint
        self._required = required
        self._known = {each.label: each for each in known}
        self._roots: dict[tuple[Label, int], KnownRoot] = {}
        for root in chain.from_iterable(each.roots for each in self._known.values()):
            self._roots.setdefault((root.label, root.size), root)
        self._consistent: defaultdict[Label, list[frozenset[int]]] = defaultdict(list)

    @property
    def roots(self) -> Iterable[KnownRoot]:
        return self._roots.values()

    @property
    def receipts(self) -> Iterator[Receipt]:
        return (receipt for each in self._known.values() for receipt in each.receipts)

    def note_consistency(self, label: Label, first: int, second: int) -> None:
        """Note a verified consistency proof between the trees of two sizes."""
        self._consistent[label].append(frozenset((first, second)))

    def exported_roots(self) -> ExportedRoots:
        """Return a comparison with the entries of one export."""
        return ExportedRoots(self._roots)

    def result(self, label: Label, size: int) -> tuple[str, str | None]:
        """Say how the tree of this size was compared: a remark, and the check that was skipped, if any."""
        if size in self._comparable(label):
            return f", as {self.client} has verified", None
        known = self._known[label].size if label in self._known else 0
        with_whom = f"{self.client}, who has verified {plural(known, 'entry', 'entries')} of this label"
        if known:
            first, second = sorted((known, size))
            with_whom += f": give the consistency proof of `veen consistency get {first} {second}` too"
        if self._required:
            return "", f"NOT COMPARED with {with_whom}"
        return f"; not compared with {with_whom}", None

    def _comparable(self, label: Label) -> set[int]:
        """Return the sizes that the client has verified, and those that consistency proofs lead to."""
        sizes = {size for of, size in self._roots if of == label}
        while reached := [pair for pair in self._consistent[label] if len(pair & sizes) == 1]:
            sizes.update(*reached)
        return sizes


class ExportedRoots:
    """Compares the root after each entry of an export (``veen_storage``'s ``KnownRoots``).

    A contradiction is kept until the whole export is verified: an invalid export contradicts nothing.
    """

    def __init__(self, known: Mapping[tuple[Label, int], KnownRoot]) -> None:
        self._known = known
        self.contradiction: VerificationError | None = None
        self.compared_at: int | None = None
        """The size of the last tree that was compared."""

    def check(self, label: Label, seq: StreamSeq, root: MmrRoot, _hub_ts: UnixTime) -> None:
        """Compare the root after one entry."""
        known = self._known.get((label, seq))
        if known is None:
            return
        self.compared_at = seq
        if known.root != root and self.contradiction is None:
            self.contradiction = contradiction(known)

    def check_ends(self, manifest: Manifest) -> None:
        """Compare the receipt before the range and the checkpoint after it."""
        if (before := manifest.before) is not None:
            self.check(before.label, before.stream_seq, before.mmr_root, before.hub_ts)
        if (later := manifest.later) is not None:
            made = later.checkpoint
            self.check(made.label_curr, made.upto_seq, made.mmr_root, manifest.to_ts)
