"""Commands that are one module each; larger groups have folders of their own."""
