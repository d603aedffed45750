"""Proving a candidate aside before anything is stopped."""
