"""Records: declared once, with codec, fast pattern and reference."""
