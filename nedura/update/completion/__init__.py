"""The two halves of an update and what passes between them."""
