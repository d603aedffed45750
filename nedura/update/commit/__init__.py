"""Commit: one file per layout."""
