"""What of Keras runs, as a table and as a page."""
