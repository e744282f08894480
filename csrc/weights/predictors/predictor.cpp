#include "weights/predictors/predictor.h"

#include <stdexcept>

#include "weights/predictors/list.h"

namespace edgert {

std::vector<std::string> predictor_names() {
  std::vector<std::string> names;
  for (const NamedPredictor& predictor : kPredictors) names.emplace_back(predictor.name);
  return names;
}

std::unique_ptr<ExpertPredictor> make_predictor(const std::string& name, const PredictorInputs& inputs) {
  std::string expected;
  for (const NamedPredictor& predictor : kPredictors) {
    if (name == predictor.name) return predictor.make(inputs);
    expected += (expected.empty() ? "" : ", ") + std::string(predictor.name);
  }
  throw std::invalid_argument("predictor: found '" + name + "', expected one of " + expected);
}

}  // namespace edgert
