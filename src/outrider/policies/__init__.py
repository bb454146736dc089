"""Policies: what decides the actions, and how its output becomes columns."""
