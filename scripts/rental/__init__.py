"""Campaign on a rented GPU, in stages that can be cut off, and the folder of its fit."""
