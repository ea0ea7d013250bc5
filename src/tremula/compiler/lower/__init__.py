"""Programs → a flat instruction table over static steps."""
