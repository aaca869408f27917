"""The main jobs as functions, for the command line and the top-level names of countperf."""
