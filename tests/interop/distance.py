"""The largest of some distances, by which a comparison passes or fails."""
import math


def largest(distances):
    """(distance, name) of {name: distance}. It is NaN if one of them is or if there is none: no bar holds for NaN."""
    if not distances:
        return math.nan, "nothing was compared"
    name = max(distances, key=lambda one: (math.isnan(distances[one]), distances[one]))
    return float(distances[name]), name
