"""Score texts: how likely the model finds each of several endings (log-probability for each token, summed)."""

import sys

import numpy as np

import edgert

start, endings = "The cat sat on the", [" mat.", " moon.", " quantum chromodynamics."]
with edgert.load(sys.argv[1] if len(sys.argv) > 1 else None) as llm:
    assert llm.tokenizer is not None
    prompt = llm.tokenizer.encode(start)
    for ending in endings:
        tokens = prompt + llm.tokenizer.encode(ending, add_special=False)
        logits = llm.logits(tokens)  # float32 (tokens, vocabulary); row i scores token i + 1
        high = logits.max(axis=1, keepdims=True)
        log_probs = logits - high - np.log(np.exp(logits - high).sum(axis=1, keepdims=True))
        places = np.arange(len(prompt) - 1, len(tokens) - 1)
        score = log_probs[places, tokens[len(prompt) :]].sum()
        print(f"{start}{ending}  {score:.2f}")
