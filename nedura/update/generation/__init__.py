"""What runs: building, leasing, keeping and removing sealed generations and their environments."""
