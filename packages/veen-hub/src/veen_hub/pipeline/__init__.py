"""The path of a message: intake, examiner, sequencer, signer, publisher, and the feed to followers.

Control flows one way: ``Intake`` gives tickets to ``Sequencer``, and both report failures by callback.
``BodyBudget`` bounds memory, ``Uploads`` bounds threads. None of these modules depends on HTTP or on ``Hub``.
"""
