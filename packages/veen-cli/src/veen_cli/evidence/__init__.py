"""Evidence as files: what it is (``recognize``), what it says (``inspect``), whether it holds (``judge``).

A file is recognized by the strict codecs of wire objects (``kinds``), by what other bytes of ours show of
themselves (``bare``, ``segment``), or as something that is not ours (``foreign``). ``receipt``, ``proof``,
``checkpoint`` and ``consistency`` fetch evidence from a hub; ``verify`` judges any of it together, without
one.
"""
