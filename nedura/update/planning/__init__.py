"""Admission and the read-only plan."""
