"""Encoders for images and sound."""
