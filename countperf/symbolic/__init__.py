"""Exact symbolic counting of integer points; the only user of islpy."""
