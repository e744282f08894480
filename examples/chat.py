"""A conversation in an app: the model keeps what it has read, so each turn costs only what is new."""

import sys

import edgert

messages = [{"role": "system", "content": "You answer in one sentence."}]
with edgert.load(sys.argv[1] if len(sys.argv) > 1 else None, context=1024) as llm:
    for question in ["Hello!", "What is your name?", "Tell me a story about a cat."]:
        messages.append({"role": "user", "content": question})
        try:
            answer = llm.chat(messages, max_tokens=100, temperature=0.7, seed=1)
        except edgert.EdgertError as error:  # a full context, for one: the message says what to do
            print(f"error: {error}", file=sys.stderr)
            break
        messages.append({"role": "assistant", "content": answer.text})
        reused, prompt = answer.timings.reused_tokens, answer.timings.prompt_tokens
        print(f"> {question}\n{answer.text}\n[{reused} of {prompt} tokens were known]")
