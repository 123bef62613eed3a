"""Evidence in files: recognize it, show it, verify it.

``recognition``    what a file holds: a wire object, a chunk, a journal segment, other VEEN bytes, or a
                   file of another program
``rendering``      an object as JSON and as lines for a person
``verification``   whether objects verify, by themselves and together, without a hub
``fetch``          commands that fetch receipts, proofs and checkpoints from a hub
``inspect``, ``verify``   the commands for any file
"""
