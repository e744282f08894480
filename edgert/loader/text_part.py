"""The language model inside a checkpoint that reads images too: its configuration and its tensors, named as alone."""

from __future__ import annotations

from dataclasses import replace

from edgert.config import ConfigReader
from edgert.errors import ConfigError, FileFormatError
from edgert.files import Checkpoint

# Prefixes of tensors, in published checkpoints and as some versions of transformers write them; what the graph has.
_LANGUAGE = {
    "language_model.model.": "model.",
    "language_model.lm_head.": "lm_head.",
    "model.language_model.": "model.",
}
_VISION = ("vision_tower.", "multi_modal_projector.")


def text_part(checkpoint: Checkpoint, model_type: str) -> Checkpoint:
    """A checkpoint of that text-only `model_type`. Raises ConfigError without a text_config, FileFormatError."""
    source = f"{checkpoint.path}: config.json"
    text = ConfigReader(checkpoint.config, source).section("text_config")
    if text is None:
        raise ConfigError(f"{source}: text_config: found nothing, expected an object; is the file complete?")
    outer = {key: value for key, value in checkpoint.config.items() if key not in ("text_config", "vision_config")}
    tensors = {}
    for name, entry in checkpoint.tensors.items():
        if name.removeprefix("model.").startswith(_VISION):
            continue
        for prefix, plain in _LANGUAGE.items():
            if name.startswith(prefix):
                name = plain + name.removeprefix(prefix)
                break
        if name in tensors:
            raise FileFormatError(
                f"{checkpoint.path}: tensor {name[:120]!r}: found it under two names, expected one; "
                "do not trust this model"
            )
        tensors[name] = replace(entry, name=name)
    # What a whole model says of itself holds: the tokens that end a turn, for one.
    config = {**text.values, **outer, "model_type": model_type}
    return replace(checkpoint, config=config, tensors=tensors)
