"""Where a version comes from: the owner's checkout, the remote, channels, local edits, torn trees."""
