"""What is known about an executable: memory and cycles as columns, as text, on another chip."""
