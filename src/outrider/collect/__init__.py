"""Collectors: the loop that turns environments and a policy into exact experience."""
