"""Time models with fitted weights: their definitions, their weights, their predictions."""
