"""Conversations as text and tokens, by the model's own chat template."""

from edgert.chat.messages import Message, check_messages
from edgert.chat.template import ChatTemplate, encode_chat, load_chat_template

__all__ = ["ChatTemplate", "Message", "check_messages", "encode_chat", "load_chat_template"]
