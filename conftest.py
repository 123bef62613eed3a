"""For all packages' tests: Ctrl-C works in the processes they start, also where a shell has switched it off.

A shell that is not interactive starts what it puts into the background with SIGINT ignored, and children
inherit that: a run started so would see every test of an interrupt fail.
"""

import signal

pytest_plugins = ["veen_testing.warm_start", "veen_testing.warm_veen"]

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
