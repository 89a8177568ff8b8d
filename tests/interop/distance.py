"""Returns the largest of several distances, by which a comparison passes or fails."""
import math


def largest(distances):
    """Returns the largest of {name: distance} as (distance, name). The distance is NaN, which fails every bar, if any distance
    is NaN or if there are no distances."""
    if not distances:
        return math.nan, "nothing was compared"
    name = max(distances, key=lambda one: (math.isnan(distances[one]), distances[one]))
    return float(distances[name]), name
