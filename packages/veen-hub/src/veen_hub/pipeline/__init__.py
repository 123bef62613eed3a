"""The path of a submit: intake, examiner, sequencer, signer, feed."""
