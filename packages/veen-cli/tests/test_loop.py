"""An event loop that ends as soon as its work does."""

from __future__ import annotations

from veen_cli.frame import loop


class Large:
    """A result that nobody should write out."""

    def __repr__(self) -> str:
        raise AssertionError("written out")


def test_what_was_worked_out_is_handed_over_and_not_written_out() -> None:
    made = Large()

    async def work() -> Large:
        return made

    assert loop.run(work()) is made
