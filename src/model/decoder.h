// model/decoder.h: a model's forward and backward pass over the batch that the
// program's arguments hold.
#pragma once

#include "model/program.h"

namespace tessera::model {

struct Written {
  Value loss, tiles;
  Values gradients;  // in the order of the parameters
};

// Parameters are in the order of model_parameters(); on a mesh, a part of each.
Result<Written> write_step(Writer& w, const StepShape& s,
                           const Values& parameters, bool with_gradients);
// [batch, tokens, vocab]
Result<Value> write_step_logits(Writer& w, const StepShape& s,
                                const Values& parameters);

}  // namespace tessera::model
