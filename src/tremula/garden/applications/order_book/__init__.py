"""Where a price goes next, from the orders around it."""
