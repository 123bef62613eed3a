"""The directory: an index of the advertised descriptors by the fields that filters name (spec-5 6.2).

Each value of a field has a list of the descriptors with this value, sorted by (name, id). A query walks the
lists of its conditions together and skips with binary search, so its cost follows from the results it returns
and not from the number of descriptors. The order of results is that of (name, id); hubs have no name.

``update`` takes in a later state of the same log: only ids whose summary changed are indexed again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

from veen_overlays.discovery.publishers import SignerRecords
from veen_overlays.discovery.records import ADVERTISE, KINDS, Descriptor, HubAdvertise, Kind, OverlayAdvertise
from veen_overlays.discovery.state import DiscoveryState, Listed, listed_of

SortKey = tuple[str, bytes]
"""The name and the id of a descriptor: results are in this order."""
Value = str | bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Conditions on a descriptor: a name prefix, required values, and fields with alternative values."""

    prefix: str | None = None
    equal: tuple[tuple[str, Value], ...] = ()
    any_of: tuple[tuple[str, Sequence[Value]], ...] = ()


NO_CONDITIONS: Final = Conditions()


def _terms(found: Descriptor) -> set[tuple[str, Value]]:
    """The pairs of field and value that a descriptor is found by."""
    terms: set[tuple[str, Value]] = {("tag", tag) for tag in found.tags}
    if isinstance(found, HubAdvertise):
        return terms | {("region", found.region)} | {("overlay_id", bytes(o)) for o in found.overlays}
    if isinstance(found, OverlayAdvertise):
        return terms | {("schema", bytes(schema)) for schema in found.schemas}
    terms |= {("method", method) for method in found.methods} | {("region", each) for each in found.regions}
    return terms | {("overlay_id", bytes(found.overlay_id))}


class _Postings:
    """The descriptors of one kind."""

    def __init__(self) -> None:
        self.all: list[SortKey] = []
        self.by_term: dict[tuple[str, Value], list[SortKey]] = {}
        self.listed: dict[SortKey, Listed] = {}
        self.sort_keys: dict[bytes, SortKey] = {}

    def put(self, id_: bytes, listed: Listed | None) -> None:
        """Replace the descriptor of an id; None removes it."""
        if (sort_key := self.sort_keys.pop(id_, None)) is not None:
            old = self.listed.pop(sort_key)
            self._remove(self.all, sort_key)
            for term in _terms(ADVERTISE[old.kind].decode(old.body)):
                self._remove(self.by_term[term], sort_key)
                if not self.by_term[term]:
                    del self.by_term[term]
        if listed is not None:
            found = listed.descriptor
            assert found is not None
            sort_key = "" if isinstance(found, HubAdvertise) else found.name, id_
            self.sort_keys[id_], self.listed[sort_key] = sort_key, listed._replace(descriptor=None)
            insort(self.all, sort_key)
            for term in _terms(found):
                insort(self.by_term.setdefault(term, []), sort_key)

    @staticmethod
    def _remove(sort_keys: list[SortKey], sort_key: SortKey) -> None:
        del sort_keys[bisect_left(sort_keys, sort_key)]


class _Walk:
    """A position in the sorted union of several lists that only moves forward."""

    __slots__ = ("_at", "_lists")

    def __init__(self, lists: Sequence[list[SortKey]]) -> None:
        self._lists, self._at = lists, [0] * len(lists)

    def seek(self, sort_key: SortKey) -> SortKey | None:
        """The first sort_key that is not before ``sort_key``, or None."""
        best: SortKey | None = None
        for n, sort_keys in enumerate(self._lists):
            at = self._at[n] = _gallop(sort_keys, sort_key, self._at[n])
            if at < len(sort_keys) and (best is None or sort_keys[at] < best):
                best = sort_keys[at]
        return best


def _gallop(sort_keys: list[SortKey], sort_key: SortKey, start: int) -> int:
    """``bisect_left`` from ``start`` on; its cost grows with the distance that it moves."""
    step, low = 1, start
    while start + step < len(sort_keys) and sort_keys[start + step] < sort_key:
        low, step = start + step, step * 2
    return bisect_left(sort_keys, sort_key, low, min(start + step, len(sort_keys)))


class Directory:
    """An index of the descriptors in force; expired ones stay in it and are skipped."""

    def __init__(self, state: DiscoveryState | None = None) -> None:
        self._state: DiscoveryState = {}
        self._kinds: dict[Kind, _Postings] = {kind: _Postings() for kind in KINDS}
        if state is not None:
            self.update(state)

    def identity_of(self, signer: bytes) -> bytes:
        """The lowest identity key that a signer is linked to (P16); without a link, the signer."""
        return min(self._state.get("links", {}).get(signer, ()), default=signer)

    def update(self, state: DiscoveryState) -> None:
        """Take in a later state of the same log."""
        for kind, id_ in _changed(self._state, state):
            in_force = next(listed_of(state, kind, id_), None)
            advertised = in_force is not None and in_force.status == "advertised"
            self._kinds[kind].put(id_, in_force if advertised else None)
        self._state = state

    def get(self, kind: Kind, id_: bytes) -> Listed | None:
        """The advertised descriptor of an id, expired or not."""
        postings = self._kinds[kind]
        sort_key = postings.sort_keys.get(id_)
        return None if sort_key is None else postings.listed[sort_key]

    def matching(self, kind: Kind, wanted: Conditions, now: int) -> Iterator[Listed]:
        """The descriptors that fit and have not expired at ``now``, in the order of (name, id)."""
        postings = self._kinds[kind]
        lists = [[postings.by_term.get(term, [])] for term in wanted.equal]
        lists += [
            [postings.by_term.get((name, v), []) for v in dict.fromkeys(vs)] for name, vs in wanted.any_of
        ]
        walks = [_Walk(each) for each in lists] or [_Walk([postings.all])]
        prefix = wanted.prefix or ""
        target: SortKey | None = (prefix, b"")
        while target is not None:
            found = _meet(walks, target)
            if found is None or not found[0].startswith(prefix):
                return
            listed = postings.listed[found]
            if now < listed.expires_at:
                yield listed
            target = found[0], found[1] + b"\x00"


def _meet(walks: Sequence[_Walk], target: SortKey) -> SortKey | None:
    """The first sort_key from ``target`` on that every walk contains, or None."""
    agreed = 0
    for walk in cycle(walks):
        found = walk.seek(target)
        if found is None:
            return None
        agreed = agreed + 1 if found == target else 1
        if agreed == len(walks):
            return found
        target = found
    raise AssertionError("no walk")


def _changed(old: DiscoveryState, new: DiscoveryState) -> Iterator[tuple[Kind, bytes]]:
    """The ids whose summary differs; unchanged parts of a summary are the same objects, so this is cheap."""
    linked = _differing(old, new, "links")
    for kind in KINDS:
        claims: Mapping[bytes, Mapping[bytes, SignerRecords]] = new.get(kind, {})
        ids = set(_differing(old, new, kind))
        if kind == "hub":
            ids |= {hub for hub in _differing(old, new, "keys") if hub in claims}
        named = _differing(old, new, "named")
        if linked:
            ids |= {id_ for id_, signers in claims.items() if not linked.isdisjoint(signers)}
            named |= {key for key, signers in new.get("named", {}).items() if not linked.isdisjoint(signers)}
        parts = (key.partition(b"/") for key in named)
        ids |= {id_ for of, _, id_ in parts if of == kind.encode() and id_ in claims}
        yield from ((kind, id_) for id_ in ids)


def _differing(old: DiscoveryState, new: DiscoveryState, part: str) -> set[bytes]:
    before: Mapping[bytes, Any] = old.get(part, {})
    after: Mapping[bytes, Any] = new.get(part, {})
    if before is after:
        return set()
    return {key for key, value in after.items() if before.get(key) is not value}
