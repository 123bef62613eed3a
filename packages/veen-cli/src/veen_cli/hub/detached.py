"""The process behind ``veen hub start --detach``: a hub that fails as one in the foreground does.

Its last line and its exit code are those of ``veen``, so that whoever started it repeats both.
"""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from veen_hub import main as server  # noqa: PLC0415 - an installation that is broken is told as well

        server.run(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - the last resort, as in veen_cli.frame.main
        # Imported here: a hub that runs needs nothing of the command line.
        from veen_cli.frame.main import judged  # noqa: PLC0415

        return judged(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
