"""Training: examples become a model, and can be stopped and gone on with at any moment."""
