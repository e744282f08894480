"""Models by name: ORG/NAME[:FILE] in the Hugging Face cache. Only `download` needs huggingface_hub, or a network."""

from edgert.hub.names import HubName, parse_name
from edgert.hub.resolve import resolve_model

__all__ = ["HubName", "parse_name", "resolve_model"]
