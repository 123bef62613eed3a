"""The process behind ``veen hub start --detach``: runs a hub and reports its failure to the parent process.

A failure is the last line of its log, as the JSON object that ``veen --json`` prints, and the exit code.
"""

from __future__ import annotations

import sys


def main() -> int:
    try:
        from veen_hub import main as server  # noqa: PLC0415 - a broken installation is reported as well

        server.run(sys.argv[1:])
    except Exception as error:  # noqa: BLE001 - the last resort, as in veen_cli.frame.process
        # Imported here: a hub that runs does not need the command line.
        from veen_cli.frame.process import report_exception  # noqa: PLC0415

        report = report_exception(error, ["hub", "start"])
        sys.stderr.write(report.json + "\n")
        return report.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
