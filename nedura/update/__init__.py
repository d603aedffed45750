"""Placeholder doc, replaced by its package's author."""
