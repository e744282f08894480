"""Many prompts at once: one read of the weights serves all of them. Also from threads, as a server has them."""

import sys
from concurrent.futures import ThreadPoolExecutor

import edgert

animals = ["a cat", "a dog", "a bird", "a mouse"]
prompts = [f"Once upon a time there was {animal}" for animal in animals]
with edgert.load(sys.argv[1] if len(sys.argv) > 1 else None) as llm:
    answers = llm.generate(prompts, max_tokens=24, temperature=0)
    for prompt, answer in zip(prompts, answers, strict=True):
        print(f"{prompt}{answer.text!r}")

    # One LLM for all threads: requests that run at the same time share their steps.
    with ThreadPoolExecutor(max_workers=4) as pool:
        later = list(pool.map(lambda prompt: llm.generate(prompt, max_tokens=24, temperature=0), prompts))
    assert [one.text for one in later] == [one.text for one in answers]  # company changes no bit
