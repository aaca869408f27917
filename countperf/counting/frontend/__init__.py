"""From what users call a kernel to one that Loopy has preprocessed and scheduled."""
