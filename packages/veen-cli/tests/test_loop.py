"""The event loop does not format the result of its work."""

from __future__ import annotations

from veen_cli.frame import loop


class Large:
    """A result that must not be formatted."""

    def __repr__(self) -> str:
        raise AssertionError("written out")


def test_the_result_of_a_coroutine_is_not_formatted() -> None:
    made = Large()

    async def work() -> Large:
        return made

    assert loop.run(work()) is made
