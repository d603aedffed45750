"""The soak: a random life of one root, with invariants after every step.

Sign-ins, sign-outs, refreshes, hand-offs, kills, power cuts, clock jumps and portal faults:
`python -m tests.soak --seed N --steps M [--json] [--self-check]`.
"""
