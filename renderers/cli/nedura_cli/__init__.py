"""Terminal renderer of nedura."""
