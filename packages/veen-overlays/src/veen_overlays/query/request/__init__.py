"""Queries as data: the descriptor, its filter, fields, groups and evidence policy (query-api §4)."""
