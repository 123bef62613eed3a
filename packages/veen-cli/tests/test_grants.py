"""``veen grant`` against a real hub: what it says about a revocation (spec-3 §3)."""

from __future__ import annotations

from .conftest import Town


def test_a_revocation_says_if_the_stream_has_no_such_grant(square: Town) -> None:
    on = ("--log", "grants", "--reader", square / "realm", "--json")
    given = square.as_("alice", "grant", "issue", square / "bob", "--stream", "till", "--for", "1h", *on).json
    assert not square.as_("alice", "grant", "revoke", "ab" * 32, *on).json["known"]
    assert not square.as_("alice", "grant", "revoke", square / "bob", "--grant", "ab" * 32, *on).json["known"]
    one = ("--grant", given["auth_ref"])
    assert square.as_("alice", "grant", "revoke", square / "bob", *one, *on).json["known"]
    assert square.as_("alice", "grant", "revoke", square / "bob", *on).json["known"]
