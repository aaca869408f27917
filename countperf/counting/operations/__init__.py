"""Rules for each class of nodes: what an expression computes and accesses, in both views."""
