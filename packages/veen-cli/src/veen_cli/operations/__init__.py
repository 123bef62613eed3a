"""Commands of the operation profiles (spec-3): payments, grants, agreements, publications, recoveries."""
