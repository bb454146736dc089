"""Running statistics of observations and rewards, and columns on the scale that they say."""
