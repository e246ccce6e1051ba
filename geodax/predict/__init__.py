"""What a posterior says of new examples: ensembles of predictions, their scores, conformal sets."""
