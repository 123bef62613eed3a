"""Commands that are one module each; larger groups have rooms of their own."""
