// The predictors; a new one is a file and a line here.
#pragma once
#include "weights/predictors/predictor.h"

namespace edgert {

std::unique_ptr<ExpertPredictor> make_none(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_previous_token(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_frequency(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_affinity(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_cross_layer_gate(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_table(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_token(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_blend(const PredictorInputs& inputs);
std::unique_ptr<ExpertPredictor> make_lookahead(const PredictorInputs& inputs);

struct NamedPredictor {
  const char* name;
  std::unique_ptr<ExpertPredictor> (*make)(const PredictorInputs&);
};
inline constexpr NamedPredictor kPredictors[] = {
    {"none", make_none},
    {"previous_token", make_previous_token},
    {"frequency", make_frequency},
    {"affinity", make_affinity},
    {"cross_layer_gate", make_cross_layer_gate},
    {"table", make_table},
    {"token", make_token},
    {"blend", make_blend},
    {"lookahead", make_lookahead},
};

}  // namespace edgert
