"""What each expression computes and accesses: rules for each class of nodes, in both views."""
