"""The control plane: authority, revocation, label classes and the schema registry (spec-2)."""
