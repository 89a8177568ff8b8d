"""The largest of some distances, by which a comparison passes or fails."""
import math


def largest(distances):
    """Returns the largest of {name: distance} as (distance, name). It is NaN if one of them is NaN or if there is none,
    since NaN fails every bar."""
    if not distances:
        return math.nan, "nothing was compared"
    name = max(distances, key=lambda one: (math.isnan(distances[one]), distances[one]))
    return float(distances[name]), name
