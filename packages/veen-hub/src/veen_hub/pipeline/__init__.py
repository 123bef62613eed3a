"""The way of a message through the hub: intake, examiner, sequencer, signer, and the feed to followers.

Control flows one way. ``Intake`` gives tickets to ``Sequencer``; both report failures by callback. The body
budget and the uploads bound memory and threads. None of these modules knows HTTP or the hub object.
"""
