"""From a path to a model whose weights can be loaded."""

from edgert.loader.model import Model, Progress, load_weights, open_model
from edgert.loader.weights import WeightSource

__all__ = ["Model", "Progress", "WeightSource", "load_weights", "open_model"]
