"""From a path to a model whose weights can be loaded."""

from edgert.loader.model import Model, Progress, finish_loading, load_weights, open_model, start_loading
from edgert.loader.weights import WeightSource

__all__ = ["Model", "Progress", "WeightSource", "finish_loading", "load_weights", "open_model", "start_loading"]
