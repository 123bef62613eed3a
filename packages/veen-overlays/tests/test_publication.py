"""Data publications: content roots, one publication per version, survivorship (spec-3 §6)."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from signed_logs import IDS, STREAM_KEYS, Signed, link, signed_log, state_after
from strategies import lifted

from veen_core.errors import EncodeError
from veen_core.hashing import H
from veen_overlays.operations.content_root import ContentRoot, PublishedFile, content_root
from veen_overlays.operations.publication import (
    PUBLICATIONS,
    DataPublication,
    SurvivorRule,
    publication_id,
    publications_of,
    survivor,
    version_order,
)
from veen_overlays.recorder.records import KeyContinuity

RATES = publication_id("rates")
ROOTS = [ContentRoot(bytes([n]) * 32) for n in range(3)]


def published(version: str, by: int = 0, root: int = 0, signer: bytes | None = None) -> Signed:
    record = DataPublication(
        publication_id=RATES,
        publisher_identity=IDS[by],
        content_root=ROOTS[root],
        content_class="dataset",
        version=version,
    )
    return record, signer or bytes(IDS[by])


def refusals(*entries: Signed) -> list[tuple[int, str | None]]:
    return [(each.seq, each.refused) for each in publications_of(state_after(PUBLICATIONS, *entries))]


# --- the content root


def recursive_root(leaves: list[bytes]) -> bytes:
    """The root by the definition: perfect subtrees of decreasing size from the left, written recursively."""

    def tagged(tag: bytes, content: bytes) -> bytes:
        return sha256(tag + b"\x00" + content).digest()

    def perfect(part: list[bytes]) -> bytes:
        if len(part) == 1:
            return part[0]
        half = len(part) // 2
        return tagged(b"veen/content-node", perfect(part[:half]) + perfect(part[half:]))

    peaks, left = [], leaves
    while left:
        size = 1 << (len(left).bit_length() - 1)
        peaks.append(perfect(left[:size]))
        left = left[size:]
    return tagged(b"veen/content-root", b"".join(reversed(peaks)))


def leaf(name: str, digest: bytes) -> bytes:
    text = name.encode()
    assert len(text) < 24
    head = b"\x82" + bytes([0x60 + len(text)]) + text + b"\x58\x20" + digest
    return sha256(b"veen/content-leaf\x00" + head).digest()


@pytest.mark.parametrize("count", range(1, 18))
def test_the_root_is_that_of_the_definition_in_any_order(count: int) -> None:
    files = [PublishedFile(f"file {n:02}", H(bytes([n]))) for n in range(count)]
    expected = recursive_root([leaf(*file) for file in files])
    random.Random(count).shuffle(files)
    assert content_root(files) == expected


def test_another_name_content_or_file_gives_another_root() -> None:
    one, two = PublishedFile("a", H(b"1")), PublishedFile("b", H(b"2"))
    others = [[one], [two], [one, two], [PublishedFile("a", H(b"2")), PublishedFile("b", H(b"1"))]]
    assert len({content_root(each) for each in others}) == len(others)


@pytest.mark.parametrize("name", ["", "/etc", "a//b", "./a", "a/../b", "a\x00", "\ud800", "x" * 4097])
def test_a_name_that_is_no_plain_relative_path_is_refused(name: str) -> None:
    with pytest.raises(EncodeError, match="cannot be published"):
        content_root([PublishedFile(name, bytes(32))])


def test_no_file_two_files_with_one_name_and_a_short_hash_are_refused() -> None:
    file = PublishedFile("a", bytes(32))
    for files in ([], [file, PublishedFile("a", bytes([1]) * 32)], [PublishedFile("a", bytes(31))]):
        with pytest.raises(EncodeError):
            content_root(files)


# --- the fold


def test_p1_the_first_publication_of_a_version_counts_and_later_ones_are_shown_as_refused() -> None:
    found = refusals(published("v1"), published("v1", root=1), published("v2", root=1), published("v1", by=1))
    assert [why for _, why in found] == [
        None,
        "message 1 has published this version (P1)",
        None,
        "message 1 has published this version (P1)",
    ]


def test_the_same_publication_again_is_counted() -> None:
    (once,) = publications_of(state_after(PUBLICATIONS, *(published("v1") for _ in range(3))))
    assert (once.published, once.refused) == (3, None)


def test_a_publication_that_its_publisher_has_not_signed_does_not_take_the_version() -> None:
    forged = published("v1", root=1, signer=IDS[2])
    assert refusals(forged, published("v1")) == [(1, "its publisher has not signed it"), (2, None)]
    by_stream_key = published("v1", signer=STREAM_KEYS[0])
    assert refusals(by_stream_key)[0][1] is not None
    assert refusals(link(0), by_stream_key) == [(2, None)]


def test_p2_a_consumer_takes_the_highest_or_the_latest_version() -> None:
    found = publications_of(
        state_after(
            PUBLICATIONS, *(published(v) for v in ("v1.9", "v1.10", "v1.2")), published("v1.10", root=1)
        )
    )
    chosen = [survivor(found, rule) for rule in (SurvivorRule.HIGHEST, SurvivorRule.LATEST)]
    assert [each.record.version for each in chosen if each] == ["v1.10", "v1.2"]
    assert survivor([], SurvivorRule.HIGHEST) is None


def test_runs_of_digits_compare_as_numbers_of_any_length() -> None:
    rising = ["", "v1", "v1.2", "v1.9", "v1.10", "v1." + "9" * 5000, "v2"]
    assert sorted(random.Random(1).sample(rising, len(rising)), key=version_order) == rising


@pytest.mark.parametrize(
    "rising",
    [
        "v1.0-alpha v1.0-beta v1.0-rc v1.0-rc0 v1.0-rc1 v1.0-RC2 v1.0-rc10 v1.0 v1.0.1-rc1 v1.0.1 v1.1",
        "1.0.dev3 1.0alpha 1.0rc2 1.0 1.0.0-x.7 1.0.0 1.0.1",
        "1.0a1 1.0b2 1.0c1 1.0~rc1 1.0 1.0b",
        "2025-11-13 2025-11-13T12:00Z 2025-11-14",
    ],
    ids=["hyphens", "words", "letters", "dates"],
)
def test_a_pre_release_is_lower_than_its_release_and_any_other_suffix_higher(rising: str) -> None:
    versions = rising.split()
    assert sorted(random.Random(1).sample(versions, len(versions)), key=version_order) == versions
    assert version_order("1.0") == version_order("v1.0")
    assert version_order("1.0 rc1") < version_order("1.0")


# --- the oracle


def interpreted(entries: list[Signed]) -> list[tuple[int, int, str | None]]:
    linked: set[tuple[bytes, bytes]] = set()
    taken: dict[str, int] = {}
    found: dict[Any, list[Any]] = {}
    for seq, (record, signer) in enumerate(entries, 1):
        if isinstance(record, KeyContinuity):
            if record.client_id == signer:
                linked.add((bytes(record.principal_id), bytes(record.client_id)))
            continue
        assert isinstance(record, DataPublication)
        publisher = bytes(record.publisher_identity)
        what = publisher, signer, record.version, record.content_root
        if what in found:
            found[what][1] += 1
            continue
        why = None
        if publisher != signer and (publisher, signer) not in linked:
            why = "its publisher has not signed it"
        elif taken.setdefault(record.version, seq) != seq:
            why = f"message {taken[record.version]} has published this version (P1)"
        found[what] = [seq, 1, why]
    return [(seq, times, why) for seq, times, why in found.values()]


def any_entry() -> st.SearchStrategy[Signed]:
    signers = st.sampled_from((*IDS[:2], *STREAM_KEYS[:2]))
    made = st.builds(
        published,
        st.sampled_from(("v1", "v2")),
        st.integers(0, 1),
        st.integers(0, 2),
        signers,
    )
    return st.one_of(made, made, made, st.integers(0, 1).map(link))


@given(st.lists(any_entry(), max_size=25), st.integers(0, 25))
def test_the_fold_is_the_interpretation_of_the_document_wherever_the_log_is_cut(
    entries: list[Signed], cut: int
) -> None:
    log = signed_log(*entries)
    summary = PUBLICATIONS.merge(PUBLICATIONS.fold(part) for part in (log[:cut], log[cut:]))
    found = publications_of(summary.inner)
    assert PUBLICATIONS.encode(PUBLICATIONS.merge(lifted(PUBLICATIONS, log))) == PUBLICATIONS.encode(summary)
    assert [(each.seq, each.published, each.refused) for each in found] == interpreted(entries)
