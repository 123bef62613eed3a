"""Records: declared once, with codec, fast decoding and reference.

``record`` declares them, ``pattern`` decodes small ones quickly, ``reference`` documents them.
"""
