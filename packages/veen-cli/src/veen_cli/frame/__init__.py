"""The frame of every command: process, groups, output, failures, settings and argument types."""
