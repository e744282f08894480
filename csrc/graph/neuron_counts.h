// How many tokens activated each neuron while a model ran: what a stream of neurons begins with.
#pragma once
#include <cstdint>
#include <vector>

#include "weights/request.h"

namespace edgert {

// Of one matrix that lies neuron by neuron: tokens that it was multiplied with, and for each column those of them whose
// code was not 0.
struct NeuronCounts {
  WeightId weight = -1;
  std::int64_t num_tokens = 0;
  std::vector<std::uint32_t> active;
};

}  // namespace edgert
