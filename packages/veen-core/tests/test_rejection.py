"""The admission table as data (§8.2, H1)."""

from itertools import pairwise

import pytest

from veen_core import rejection
from veen_core.rejection import HTTP_STATUS, TABLE, Code, Rejection, Stage

SPEC = [  # §8.2's table, row by row
    ("prefilter", "E.SIZE", "SIZE_PREFILTER"),
    ("prefilter", "E.AUTH", "PREFILTER_REJECT"),
    ("structural", "E.FORMAT", "CBOR_INVALID"),
    ("structural", "E.SIZE", "FIELD_SIZE"),
    ("structural", "E.FORMAT", "VERSION"),
    ("structural", "E.FORMAT", "PROFILE"),
    ("structural", "E.FORMAT", "CT_HASH"),
    ("structural", "E.FORMAT", "ATT_ROOT"),
    ("auth", "E.SIG", "SIG_INVALID"),
    ("auth", "E.CAP", "CAP_MISSING"),
    ("auth", "E.CAP", "CAP_INVALID"),
    ("auth", "E.AUTH", "AUTH_REF"),
    ("auth", "E.TIME", "CAP_TTL"),
    ("auth", "E.RATE", "CAP_RATE"),
    ("commit", "E.SEQ", "PREV_ACK"),
    ("commit", "E.SEQ", "DUPLICATE"),
    ("commit", "E.SEQ", "CLIENT_SEQ"),
    ("commit", "E.TIME", "EPOCH"),
]
ADDED = {  # by RESOLUTIONS, each with the row it comes after
    ("auth", "E.AUTH", "NOT_PRIMARY"): "SIG_INVALID",  # H6
    ("auth", "E.CAP", "CAP_ISSUER"): "CAP_INVALID",  # H18: after CAP_INVALID
    ("auth", "E.CAP", "REVOKED"): "AUTH_REF",  # H6
    ("auth", "E.CAP", "CLIENT_BOUNDS"): "REVOKED",  # KEX1+ 4.1
    ("auth", "E.CAP", "CAP_SCOPE"): "CLIENT_BOUNDS",  # H4: after AUTH_REF, before CAP_TTL
    ("auth", "E.SIZE", "PADDING"): "CAP_TTL",  # LCLASS0 6.2, H6
}


def _row(row: Rejection) -> tuple[str, str, str]:
    return (row.stage.value, row.code.value, row.detail)


def test_the_table_is_the_specs_with_the_added_rows_left_out() -> None:
    assert [_row(row) for row in TABLE if _row(row) not in ADDED] == SPEC


def test_the_added_rows_are_where_the_resolutions_put_them() -> None:
    before = {_row(row): previous.detail for previous, row in pairwise(TABLE) if _row(row) in ADDED}
    assert before == ADDED


def test_scope_is_checked_after_auth_ref_and_before_ttl() -> None:
    order = [row.detail for row in TABLE]  # H4
    assert order.index("AUTH_REF") < order.index("CAP_SCOPE") < order.index("CAP_TTL")


def test_rows_are_in_stage_order() -> None:
    stages = [list(Stage).index(row.stage) for row in TABLE]
    assert stages == sorted(stages)
    assert [stage.value for stage in Stage] == ["prefilter", "structural", "auth", "commit"]  # §8.1


def test_no_detail_enum_is_used_twice() -> None:
    assert len({row.detail for row in TABLE}) == len(TABLE)


def test_the_rows_are_exactly_the_rejections_that_the_module_names() -> None:
    rows = {value for value in vars(rejection).values() if isinstance(value, Rejection)}
    assert rows == set(TABLE)
    assert all(getattr(rejection, row.detail) is row for row in TABLE)


def test_every_row_says_what_it_means() -> None:
    assert all(row.means for row in TABLE)


@pytest.mark.parametrize("code", list(Code), ids=lambda code: code.value)
def test_every_code_has_an_http_status(code: Code) -> None:
    assert 400 <= HTTP_STATUS[code] < 600


def test_the_statuses_are_those_of_h1() -> None:
    statuses: dict[int, set[str]] = {}
    for code, status in HTTP_STATUS.items():
        statuses.setdefault(status, set()).add(code.value)
    assert statuses == {
        400: {"E.FORMAT", "E.TIME", "E.BAD_REQUEST", "E.VERSION"},
        401: {"E.UNAUTHORIZED"},
        403: {"E.CAP", "E.AUTH", "E.FORBIDDEN"},
        404: {"E.NOT_FOUND"},
        409: {"E.SIG", "E.SEQ", "E.CONFLICT"},
        413: {"E.SIZE", "E.LIMIT"},
        429: {"E.RATE"},
        503: {"E.UNAVAILABLE"},
    }


@pytest.mark.parametrize("name", ["E.PROFILE", "E.DUP"])
def test_the_old_codes_do_not_exist(name: str) -> None:
    assert name not in {code.value for code in Code}  # H1


def test_admission_uses_only_section_8_2s_codes() -> None:
    assert {row.code.value for row in TABLE} == {
        f"E.{word}" for word in ("FORMAT", "SIZE", "SIG", "CAP", "AUTH", "RATE", "SEQ", "TIME")
    }
