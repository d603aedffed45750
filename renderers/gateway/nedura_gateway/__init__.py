"""Chat gateway process of nedura."""
