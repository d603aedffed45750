"""Shipped test parts: development portal, fake clock, scripted transport, install builder."""
