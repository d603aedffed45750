"""Snapshots, backups, restores and the maintenance nets: the user's state around an update."""
