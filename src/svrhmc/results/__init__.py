"""What is done with a posterior: summaries, predictions, effects, checks of the model, figures, ArviZ and the
report."""
