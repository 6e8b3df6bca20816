"""Inputs, oracles and error budgets that several tests share."""
