"""Supervisors: one file each behind one small Protocol."""
