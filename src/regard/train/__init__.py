"""Training a model, and what a trained model is measured by."""
