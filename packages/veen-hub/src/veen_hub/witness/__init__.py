"""A witness: a process that cosigns the checkpoints of logs and remembers them (C2SP tlog-witness).

- ``rules``: the checks of the specification, in its order, without IO;
- ``contradiction``: what a log signed that cannot both be true, as a file for a third party;
- ``state``: the newest cosigned checkpoint of each log, and the contradictions, on disk;
- ``cosigner``: compare and persist as one durable step, one sync for many requests;
- ``folder``, ``key``, ``config``: the folder of a witness, its secret key, witness.yaml;
- ``witness``: a running witness; ``routes`` and ``server``: its HTTP side;
- ``description``, ``metrics``: what monitors see;
- ``main``: the command ``veen-witness``.

A witness knows nothing of VEEN: it can watch any log in C2SP's formats.
"""
