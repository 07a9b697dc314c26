"""Aids for those who design a model: what its sizes are good for, where it stands among published ones, and which size
meets a budget."""
