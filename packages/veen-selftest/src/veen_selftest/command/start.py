"""Entry point of the program ``veen-selftest``, which runs the command ``veen selftest``."""

from __future__ import annotations

from typing import NoReturn

from veen_cli.frame import run_command, start_process


def main() -> NoReturn:
    """Run the command and exit; Ctrl-C ends it quietly, also during the imports."""

    def run() -> int:
        from veen_selftest.command.selftest import selftest  # noqa: PLC0415 - slow to import

        return run_command(selftest, name="veen-selftest")

    start_process(run)


if __name__ == "__main__":
    main()
