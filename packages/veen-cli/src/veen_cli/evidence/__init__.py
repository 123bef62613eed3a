"""Evidence in files: recognize it, show it, verify it.

``recognize``      what a file holds: a wire object (``wire_kinds``), a chunk, a journal segment
                   (``journal_segment``), other VEEN bytes (``other_formats``, ``overlay_records``), or a
                   file of another program (``foreign_files``)
``rendering``      an object as JSON and as lines for a person
``verification``   whether objects verify, by themselves and together, without a hub
``fetch``          commands that fetch receipts, proofs and checkpoints from a hub
``inspect``, ``verify``   the commands for any file
"""
