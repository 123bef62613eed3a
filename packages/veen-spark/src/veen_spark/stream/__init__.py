"""Following a live hub.

live_hub        verified entries and offsets of a hub, through ``veen_hub.client``
stream_source   ``spark.readStream.format("veen")``
live_fold       an overlay's state, updated with every batch
state_folder    the files of a live fold and their commit order
"""
