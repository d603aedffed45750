"""Proof by killing it: real updates of a real install, killed at chosen system calls or random instants, and what must hold after."""
