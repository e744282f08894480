// A small whole model, made of integers, run through the runtime: its logits are one line of the digest.
#pragma once
#include <cstdint>

#include "kernels/kernel_table.h"

namespace edgert {

// Hash of the logits of a prompt cut into spans of `span_tokens` and of greedy tokens after it.
std::uint64_t model_digest(const KernelTable& kernels, int num_threads, int span_tokens);

}  // namespace edgert
