"""Names of the structure view, what a device issues of them, and the caches that sort them."""
