"""A picture as a function of places, learnt wholly on the chip."""
