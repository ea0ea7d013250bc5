"""A masked autoencoder of digits, with a moving average of its weights as teacher."""
