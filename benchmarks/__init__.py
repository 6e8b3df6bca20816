"""Measurements and surveys that are run by hand, each as `python -m benchmarks.NAME`."""
