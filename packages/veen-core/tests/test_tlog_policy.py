"""Witness policies: each rule with a case that breaks it, and what makes a quorum (C2SP tlog-policy)."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veen_core.errors import DecodeError, QuorumError, SignatureError
from veen_core.ids import UnixTime
from veen_core.keys import SigningKey, SigningSeed
from veen_core.tlog.note import COSIGNATURE, ED25519, Note, NoteKey, NoteSignature, cosign, sign_note
from veen_core.tlog.policy import (
    DEFAULT_MAX_AGE_SEC,
    MAX_POLICY_BYTES,
    Cosigned,
    Log,
    PolicyWitness,
    WitnessPolicy,
    parse_policy,
)
from veen_core.tlog.tree_head import SignedHead, TreeHead

from .strategies import steady


def signer(number: int) -> SigningKey:
    return SigningKey(SigningSeed(bytes([number]) * 32))


LOG, OTHER_LOG = signer(1), signer(2)
ORIGIN = "log.example/one"
LOG_KEY = NoteKey(ORIGIN, ED25519, LOG.public)
OTHER_KEY = NoteKey(ORIGIN, ED25519, OTHER_LOG.public)
SIGNERS = [signer(number) for number in range(10, 16)]
NAMES = ["X1", "X2", "X3", "Y1", "Y2", "Y3"]
KEYS = [NoteKey(f"{name}.example", COSIGNATURE, key.public) for name, key in zip(NAMES, SIGNERS, strict=True)]
NOW = UnixTime(1_700_000_000)
HEAD = TreeHead(ORIGIN, 5, bytes(32))


def line(at: int) -> str:
    return f"witness {NAMES[at]} {KEYS[at].text}"


A, B = line(0), line(1)
EXAMPLE = f"""log {LOG_KEY.text} https://log.example/

{line(0)}
{line(1)}
{line(2)}
group X-witnesses 2 X1 X2 X3

{line(3)}
{line(4)}
{line(5)}
group Y-witnesses any Y1 Y2 Y3

group X-and-Y all X-witnesses Y-witnesses
quorum X-and-Y
"""
"""The example of the C2SP page, with keys."""


def signed(*cosigners: int, by: SigningKey = LOG, times: dict[int, int] | None = None) -> SignedHead:
    """Return a checkpoint with the cosignatures of these witnesses."""
    lines = [
        cosign(SIGNERS[at], KEYS[at].name, HEAD.text, UnixTime(NOW + (times or {}).get(at, 0)))
        for at in cosigners
    ]
    return SignedHead(HEAD, Note(HEAD.text, (sign_note(by, ORIGIN, HEAD.text), *lines)))


def policy(*lines: str) -> WitnessPolicy:
    return parse_policy("".join(f"{each}\n" for each in lines).encode())


# --- parsing


def test_the_example_of_the_page_is_parsed() -> None:
    parsed = parse_policy(EXAMPLE.encode())
    assert parsed.logs == (Log(LOG_KEY, "https://log.example/"),)
    assert parsed.witnesses == tuple(
        PolicyWitness(name.encode(), key) for name, key in zip(NAMES, KEYS, strict=True)
    )
    assert [(group.name, group.threshold, len(group.members)) for group in parsed.groups] == [
        (b"X-witnesses", 2, 3),
        (b"Y-witnesses", 1, 3),
        (b"X-and-Y", 2, 2),
    ]
    assert (parsed.quorum, parsed.max_age_sec) == (b"X-and-Y", DEFAULT_MAX_AGE_SEC)


def test_blanks_comments_and_the_order_of_logs_and_witnesses_do_not_matter() -> None:
    spaced = "\n".join(f" \t{each}\t " for each in EXAMPLE.replace(" ", " \t ").splitlines())
    commented = "# a comment\n\t# another, with \u00fc\n#veen-like words in a comment\n" + spaced + "\n#end"
    assert parse_policy(commented.encode()) == parse_policy(EXAMPLE.encode())
    assert policy(A, "quorum X1", f"log {LOG_KEY.text}") == policy(f"log {LOG_KEY.text}", A, "quorum X1")


def test_the_last_line_needs_no_newline() -> None:
    assert parse_policy(b"quorum none") == parse_policy(b"quorum none\n")


def test_words_of_the_format_are_names_too_except_none() -> None:
    parsed = policy(
        f"witness all {KEYS[0].text}", f"witness 2 {KEYS[1].text}", "group any all all 2", "quorum any"
    )
    assert parsed.is_quorum([b"all", b"2"])
    assert not parsed.is_quorum([b"all"])


def test_names_are_octets_and_not_characters() -> None:
    kelvin, k = b"\xe2\x84\xaa", b"K"
    lines = [
        b"witness " + name + b" " + key.text.encode()
        for name, key in zip((kelvin, k, b"\xff"), KEYS, strict=False)
    ]
    parsed = parse_policy(b"\n".join([*lines, b"quorum \xff"]))
    assert [witness.name for witness in parsed.witnesses] == [kelvin, k, b"\xff"]
    assert parsed.is_quorum([b"\xff"])


def test_a_url_may_contain_any_octet() -> None:
    parsed = parse_policy(f"{A} https://w.example/".encode() + b"\xff\nquorum X1\n")
    url = parsed.witnesses[0].url
    assert url is not None
    assert url.encode(errors="surrogateescape") == b"https://w.example/\xff"


def test_32_logs_witnesses_and_groups_are_supported() -> None:
    keys = [signer(number).public for number in range(32)]
    logs = [f"log {NoteKey(ORIGIN, ED25519, key).text}" for key in keys]
    witnesses = [f"witness w{at} {NoteKey('w', COSIGNATURE, key).text}" for at, key in enumerate(keys)]
    groups = [f"group g{at} any w{at}" for at in range(31)] + [
        "group g31 1 " + " ".join(f"g{at}" for at in range(31))
    ]
    parsed = policy(*logs, *witnesses, *groups, "quorum g31")
    assert (len(parsed.logs), len(parsed.witnesses), len(parsed.groups)) == (32, 32, 32)
    assert parsed.is_quorum([b"w7"])
    assert not parsed.is_quorum([b"w31"])


def renamed(key: NoteKey, name: str = "another.example") -> str:
    return NoteKey(name, key.kind, key.public).text


MANY = [NoteKey("w.example", COSIGNATURE, signer(number).public) for number in range(20, 29)]
BROKEN = {
    "no quorum": ([A], "has no quorum line"),
    "two quorums": ([A, "quorum X1", "quorum X1"], "line 3: has two quorum lines"),
    "quorum without name": (["quorum"], "is not a line of a policy"),
    "quorum with two names": ([A, B, "quorum X1 X2"], "is not a line of a policy"),
    "quorum not defined": (["quorum X1"], "names 'X1' before it is defined; defined so far: nothing$"),
    "quorum before definition": (["quorum X1", A], "line 1: names 'X1' before it is defined"),
    "quorum not defined among many": (
        [*(f"witness W{number} {key.text}" for number, key in enumerate(MANY)), "quorum X1"],
        "defined so far: W0, W1, W2, W3, W4, W5, W6, W7, …$",
    ),
    "unknown word": ([A, "quorums X1"], "line 2: 'quorums X1' is not a line of a policy"),
    "word in capitals": (["Quorum none"], "is not a line of a policy"),
    "comment after a line": (
        [f"{A} https://w.example # a comment", "quorum X1"],
        "is not a line of a policy",
    ),
    "log without key": (["log", "quorum none"], "is not a line of a policy"),
    "log with too much": ([f"log {LOG_KEY.text} a b", "quorum none"], "is not a line of a policy"),
    "log with a bad key": (["log garbage", "quorum none"], "line 1: verifier key"),
    "log with a witness key": (
        [f"log {KEYS[0].text}", "quorum none"],
        "this is the key of a witness; a log line needs the key that `veen hub keys --note` prints",
    ),
    "log twice": ([f"log {LOG_KEY.text}"] * 2 + ["quorum none"], "line 2: names the same log key twice"),
    "log key under two names": (
        [f"log {LOG_KEY.text}", f"log {renamed(LOG_KEY)}", "quorum none"],
        "names the same log key twice",
    ),
    "witness without key": (["witness X1", "quorum none"], "is not a line of a policy"),
    "witness with a log key": (
        [f"witness X1 {LOG_KEY.text}", "quorum none"],
        "this is the key of a log; a witness line needs the key that `veen witness status` prints",
    ),
    "witness name twice": ([A, f"witness X1 {KEYS[1].text}", "quorum none"], "defines 'X1' twice"),
    "witness key twice": (
        [A, f"witness X9 {KEYS[0].text}", "quorum none"],
        "names the same witness key twice",
    ),
    "witness key under two names": (
        [A, f"witness X9 {renamed(KEYS[0])}", "quorum none"],
        "names the same witness key twice",
    ),
    "witness named none": (
        [f"witness none {KEYS[0].text}", "quorum none"],
        "defines 'none', which is reserved",
    ),
    "group named none": ([A, "group none any X1", "quorum none"], "defines 'none', which is reserved"),
    "group name of a witness": ([A, B, "group X1 any X2", "quorum X1"], "defines 'X1' twice"),
    "group name twice": ([A, B, "group g any X1", "group g any X2", "quorum g"], "defines 'g' twice"),
    "group without members": ([A, "group g 1", "quorum g"], "has a group without members"),
    "group without threshold": ([A, "group g", "quorum g"], "is not a line of a policy"),
    "group of itself": ([A, "group g any g X1", "quorum g"], "names 'g' before it is defined"),
    "member not defined": (
        [A, B, "group g any X9"],
        "names 'X9' before it is defined; defined so far: X1, X2$",
    ),
    "member defined later": (
        ["group g any X1", A, "quorum g"],
        "line 1: names 'X1' before it is defined",
    ),
    "none as member": ([A, "group g any X1 none", "quorum g"], "names 'none' before it is defined"),
    "member twice in a group": ([A, "group g all X1 X1", "quorum g"], "lists 'X1' as a member twice"),
    "member of two groups": (
        [A, B, "group g any X1 X2", "group h any X1", "quorum g"],
        "lists 'X1' as a member twice",
    ),
    "group in two groups": (
        [A, B, "group g any X1", "group h any g", "group i any g X2", "quorum i"],
        "lists 'g' as a member twice",
    ),
    "threshold 0": ([A, "group g 0 X1", "quorum g"], "'0' is not any, all or an integer from 1 to 999999999"),
    "threshold negative": (
        [A, "group g -1 X1", "quorum g"],
        "'-1' is not any, all or an integer from 1 to 999999999",
    ),
    "threshold with a zero in front": (
        [A, "group g 01 X1", "quorum g"],
        "'01' is not any, all or an integer from 1 to 999999999",
    ),
    "threshold too large": ([A, "group g 2 X1", "quorum g"], "wants 2 of 1 members"),
    "threshold beyond all bounds": (
        [A, f"group g {'9' * 5_000} X1", "quorum g"],
        "is not any, all or an integer from 1 to 999999999",
    ),
    "max-age not a number": (
        ["#veen max-age soon", "quorum none"],
        "line 1: 'soon' is not an integer from 1 to 999999999 .seconds.",
    ),
    "max-age 0": (["#veen max-age 0", "quorum none"], "'0' is not an integer from 1 to 999999999 .seconds."),
    "max-age twice": (
        ["#veen max-age 5", "#veen max-age 5", "quorum none"],
        "line 2: has two max-age lines",
    ),
    "max-age without value": (["#veen max-age", "quorum none"], "is not a line of a policy"),
    "misspelt setting": (["#veen max_age 5", "quorum none"], "is not a line of a policy"),
    "misspelt setting after a tab": (["#veen\tmaxage 5", "quorum none"], "is not a line of a policy"),
}
"""Lines of a policy, and the error that names the broken rule."""


@pytest.mark.parametrize(("lines", "match"), [pytest.param(*case, id=name) for name, case in BROKEN.items()])
def test_a_policy_that_breaks_a_rule_is_refused_with_its_line(lines: list[str], match: str) -> None:
    with pytest.raises(DecodeError, match=match) as refusal:
        policy(*lines)
    assert str(refusal.value).startswith("policy (C2SP tlog-policy)")


@pytest.mark.parametrize(
    "octet", [0x00, 0x01, 0x08, 0x0B, 0x0C, 0x0D, 0x1B, 0x1F, 0x7F], ids="0x{:02x}".format
)
def test_control_characters_other_than_tab_and_newline_are_refused(octet: int) -> None:
    for text in (b"quorum none" + bytes([octet]), b"# " + bytes([octet]) + b"\nquorum none\n"):
        with pytest.raises(DecodeError, match="a control character other than tab and newline"):
            parse_policy(text)


def test_a_key_name_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(DecodeError, match="line 1: has a key name that is not UTF-8"):
        parse_policy(b"log \xff+00000000+AAAA\nquorum none\n")


def test_unicode_spaces_do_not_separate_words() -> None:
    with pytest.raises(DecodeError, match="is not a line of a policy"):
        parse_policy("quorum\u00a0none\n".encode())


def test_a_policy_that_is_too_long_is_refused() -> None:
    with pytest.raises(DecodeError, match=f"more than {MAX_POLICY_BYTES} bytes"):
        parse_policy(b"#" * (MAX_POLICY_BYTES + 1))


@steady(100)
@given(
    st.lists(
        st.sampled_from(
            [
                A,
                B,
                "group g any X1",
                "group h 2 X2 g",
                "quorum h",
                "quorum none",
                "#veen max-age 9",
                "log",
                f"log {LOG_KEY.text}",
                "\t",
                "# x",
            ]
        )
    )
)
def test_any_lines_make_a_policy_or_a_decode_error(lines: list[str]) -> None:
    try:
        parsed = policy(*lines)
    except DecodeError:
        return
    assert lines.count(f"quorum {parsed.quorum.decode()}") == 1
    assert parsed.is_quorum([witness.name for witness in parsed.witnesses])


# --- quorums


def test_a_quorum_is_two_of_the_first_group_and_one_of_the_second() -> None:
    parsed = parse_policy(EXAMPLE.encode())
    for count in range(len(NAMES) + 1):
        for names in combinations(NAMES, count):
            expected = sum(name[0] == "X" for name in names) >= 2 and any(name[0] == "Y" for name in names)
            assert parsed.is_quorum([name.encode() for name in names]) == expected


def test_a_quorum_of_one_witness_needs_that_witness() -> None:
    single = policy(f"log {LOG_KEY.text}", A, B, "quorum X2")
    assert [witness.name for witness in single.check(signed(1)).witnesses] == [b"X2"]
    with pytest.raises(QuorumError, match="has the cosignatures of 1 of 2 witnesses, which is no quorum"):
        single.check(signed(0))


def test_quorum_none_needs_no_cosignature_but_the_signature_of_the_log() -> None:
    bare = policy(f"log {LOG_KEY.text}", A, "quorum none")
    assert bare.check(signed()) == Cosigned((), None)
    assert bare.check(signed(0)).witnesses == (PolicyWitness(b"X1", KEYS[0]),)
    with pytest.raises(SignatureError, match="no signature of a log that the policy names"):
        bare.check(signed(by=OTHER_LOG))


def test_names_that_are_not_witnesses_make_no_quorum() -> None:
    assert not policy(A, B, "group g all X1 X2", "quorum g").is_quorum([b"X1", b"none", b"X3"])


def test_the_same_witness_twice_in_a_note_counts_once() -> None:
    two = policy(f"log {LOG_KEY.text}", A, B, "group g 2 X1 X2", "quorum g")
    head = signed(0)
    doubled = head.note.signatures + signed(0, times={0: 7}).note.signatures[1:]
    with pytest.raises(QuorumError, match="1 of 2 witnesses"):
        two.check(SignedHead(HEAD, Note(HEAD.text, doubled)))


def test_a_bad_cosignature_of_a_listed_witness_spoils_the_checkpoint() -> None:
    one = policy(f"log {LOG_KEY.text}", A, B, "quorum X1")
    bad = NoteSignature(KEYS[1].name, KEYS[1].key_id, bytes(72))
    with pytest.raises(SignatureError, match=r"the signature of X2.example does not verify"):
        one.check(SignedHead(HEAD, signed(0).note.with_signatures([bad])))


def test_the_signature_of_a_log_does_not_count_as_a_cosignature() -> None:
    """The same key, once as the key of a log and once as that of a witness."""
    both = NoteKey(ORIGIN, COSIGNATURE, LOG.public)
    with pytest.raises(QuorumError, match="0 of 1 witnesses"):
        policy(f"log {LOG_KEY.text}", f"witness w {both.text}", "quorum w").check(signed())


# --- logs


def test_a_checkpoint_of_a_log_that_the_policy_does_not_name_is_refused() -> None:
    for log in (NoteKey("log.example/two", ED25519, LOG.public), NoteKey("log.example", ED25519, LOG.public)):
        with pytest.raises(SignatureError, match=f"the policy does not name the log {ORIGIN}"):
            policy(f"log {log.text}", A, "quorum X1").check(signed(0))


def test_a_policy_without_logs_needs_the_keys_of_the_log_from_elsewhere() -> None:
    without = policy(A, "quorum X1")
    assert without.check(signed(0), log_keys=[LOG_KEY]).witnesses
    with pytest.raises(SignatureError, match="no signature of a log"):
        without.check(signed(0))
    with pytest.raises(SignatureError, match="no signature of a log"):
        without.check(signed(0), log_keys=[OTHER_KEY])


def test_keys_from_elsewhere_must_be_those_of_a_log_that_the_policy_names() -> None:
    named = policy(f"log {LOG_KEY.text}", A, "quorum X1")
    assert named.check(signed(0, by=OTHER_LOG), log_keys=[LOG_KEY, OTHER_KEY]).witnesses  # a rotated key
    with pytest.raises(SignatureError, match="the policy does not name the log"):
        named.check(signed(0, by=OTHER_LOG), log_keys=[OTHER_KEY])
    with pytest.raises(SignatureError, match="the policy does not name the log"):
        named.check(signed(0), log_keys=[NoteKey("log.example/two", ED25519, LOG.public)])


# --- times


def test_the_time_of_a_quorum_is_the_newest_at_which_enough_witnesses_cosigned() -> None:
    parsed = parse_policy(EXAMPLE.encode())
    times = {0: 10, 1: 20, 2: 30, 3: 5, 4: 15}
    assert parsed.check(signed(0, 1, 2, 3, 4, times=times)).quorum_at == NOW + 15
    assert parsed.check(signed(0, 1, 3, times=times)).quorum_at == NOW + 5


def test_a_quorum_may_be_as_old_as_the_policy_says() -> None:
    aged = policy(f"log {LOG_KEY.text}", A, "\t#veen \tmax-age\t60 ", "quorum X1")
    assert aged.max_age_sec == 60
    cosigned = aged.check(signed(0))
    for age in (-60, 0, 60):
        aged.check_age(cosigned, UnixTime(NOW + age))
    with pytest.raises(QuorumError, match="is 61 s old, at most 60 s are allowed"):
        aged.check_age(cosigned, UnixTime(NOW + 61))
    with pytest.raises(QuorumError, match="was made 61 s in the future"):
        aged.check_age(cosigned, UnixTime(NOW - 61))


def test_a_policy_that_needs_no_quorum_has_no_age() -> None:
    bare = policy(f"log {LOG_KEY.text}", "quorum none", "#veen max-age 1")
    bare.check_age(bare.check(signed()), UnixTime(2**40))
