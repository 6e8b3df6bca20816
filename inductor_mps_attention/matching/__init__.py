"""Dynamo or ATen graph -> attention sites, each fused or left alone with reasons.

Knows nothing of Metal text or launches.
"""
