"""Training on a Ray cluster with OpenRLHF: flags, placement, memory, processes."""
