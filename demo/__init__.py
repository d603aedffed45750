"""`./run demo`: install, sign in and update a live fleet in a temporary folder, with nothing faked."""
