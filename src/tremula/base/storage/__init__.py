"""Files of Tremula: written whole, checked, and stored between runs in the cache folder."""
