"""Which instruction set level the kernels use: the best that the CPU has, capped by EDGERT_ISA."""

from __future__ import annotations

import os
from collections.abc import Mapping

from edgert import _core
from edgert.errors import DeviceError

VARIABLE = "EDGERT_ISA"


def select_isa(environment: Mapping[str, str] | None = None) -> str:
    """The name of the level to use, e.g. "avx512vnni".

    Raises DeviceError where EDGERT_ISA names no level, or one that the CPU or this build lacks.
    """
    wanted = (os.environ if environment is None else environment).get(VARIABLE, "")
    levels = _core.isa_levels()
    usable = [name for name, is_built, is_supported in levels if is_built and is_supported]
    if not wanted:
        return _core.best_isa()
    if wanted in usable:
        return wanted
    states = {name: (is_built, is_supported) for name, is_built, is_supported in levels}
    if wanted not in states:
        cause = "no instruction set level has this name"
    else:
        cause = "this CPU does not have it" if not states[wanted][1] else "it was left out of this build"
    raise DeviceError(
        f"{VARIABLE}: found {wanted!r} ({cause}), expected one of: {', '.join(usable)}; or leave it unset"
    )
