"""The model of Apple chips (`codegen/cost.py`) against published measurements, and for our own plans."""
