"""Turns a published checkpoint into our folder: the plan says what becomes of each tensor, the pipeline does it."""

from .pipeline import ConvertResult, convert
from .plan import ConvertPlan, TensorPlan, plan_conversion

__all__ = ["ConvertPlan", "ConvertResult", "TensorPlan", "convert", "plan_conversion"]
