"""A masked autoencoder of digits, with an average of its own weights as teacher."""
