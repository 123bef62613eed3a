"""Commands of the operation profiles (spec-3): ``veen grant`` and ``veen pay``."""
