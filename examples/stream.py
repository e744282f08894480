"""Stream an answer, stop it when enough has come, and see what it took: python stream.py [MODEL]."""

import sys

import edgert

with edgert.load(sys.argv[1] if len(sys.argv) > 1 else None) as llm:
    stream = llm.stream("Once upon a time", max_tokens=200, temperature=0.7, seed=1, stop=["The end"])
    num_words = 0
    for chunk in stream:  # one chunk for each token; the last one has the reason and the times
        print(chunk.text, end="", flush=True)
        num_words += chunk.text.count(" ")
        if chunk.timings:
            print(f"\n[{chunk.finish_reason}: {chunk.timings.tokens_per_s:.1f} tokens/s]")
        elif num_words >= 40:
            stream.close()  # ends the generation and frees its memory
            print("\n[stopped after 40 words]")
            break
