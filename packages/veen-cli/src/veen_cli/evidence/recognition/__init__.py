"""What a file holds: every kind of object that VEEN writes, and files of other programs beside them."""
