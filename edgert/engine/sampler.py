"""The C++ sampler of one request, built from its parameters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgert import _core
from edgert.engine.params import SamplingParams
from edgert.errors import NumericError


class RequestSampler:
    """Draws the tokens of one request: the same seed, prompt and model give the same tokens on every CPU."""

    def __init__(self, params: SamplingParams, *, seed: int, isa: str) -> None:
        self.seed = seed
        self._sampler = _core.Sampler(
            temperature=params.temperature,
            top_k=max(params.top_k, 0),
            top_p=params.top_p,
            min_p=params.min_p,
            typical_p=params.typical_p,
            repetition_penalty=params.repetition_penalty,
            presence_penalty=params.presence_penalty,
            frequency_penalty=params.frequency_penalty,
            penalty_last_n=params.penalty_last_n,
            logit_bias=params.finite_logit_bias(),
            seed=seed,
            num_logprobs=params.logprobs or 0,
            isa=isa,
        )

    def sample(self, logits: NDArray[np.float32], history: NDArray[np.int32]) -> _core.SampleResult:
        """The next token after `history` (int32, all tokens so far) from float32 logits (vocab,).

        Raises NumericError where a logit is not finite.
        """
        try:
            return self._sampler.sample(logits, len(history), history)
        except _core.NonFiniteError as error:
            raise NumericError(
                f"logits after {len(history)} tokens: {error}; the weights are damaged, get or convert the model again"
            ) from error
