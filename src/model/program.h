// model/program.h: a step of training as one program: forward, backward and
// optimizer.
#pragma once

#include <string>
#include <vector>

#include "model/block.h"
#include "model/optimizer.h"

namespace tessera::model {

// All static settings of a step.
struct StepShape {
  ModelConfig model;
  LayerSpec spec;
  int64_t batch = 1, tokens = 0;
  Element products = Element::f32;
  Element wide = Element::f32;  // f64 for tests of gradients
  bool recompute = false;       // blocks save only their input
  bool drops_barriers = false;  // XLA's compiler for CPUs does
  bool gives_state = true;      // results may reuse the state's memory
  int64_t max_logits = int64_t{1} << 22;  // logits that exist at once
  OptimizerSettings optimizer;
  Mesh mesh;  // each device has a batch of its own
  // One for each mask; layer i uses place i % size.
  std::vector<AttentionPlace> places;

  int64_t devices() const { return mesh.devices(); }
  const AttentionPlace& place_of(int64_t layer) const {
    return places[static_cast<size_t>(layer) % places.size()];
  }
};

// The columns of a batch that have one number per token.
std::vector<std::string> column_names(const ModelConfig& model);
// The arrays of a device's batch, which follow the model's state: columns,
// int32 [batch, tokens], then the integers of the plans.
std::vector<xla::Argument> batch_arguments(const StepShape& s);

// Work of each slot, in the order of a block: of one device, over all layers.
Result<std::vector<SlotWork>> step_work(const StepShape& s);

// Arguments: parameters, both moments of each (named by kStateNames), rates,
// the batch. Results: the new parameters and moments, then the loss, the norm
// of the gradients, and the tiles that attention visited. If gives_state is
// set, the new state reuses the memory of the old. On a mesh, loss and norm
// cover all devices, and each device has its own tile count, [1].
Result<std::string> step_program(const StepShape& s);
// Arguments: parameters and the batch. Results: loss, tiles and, with
// `gradients`, the gradients of the parameters.
Result<std::string> loss_program(const StepShape& s, bool gradients);
// Arguments: parameters and the batch. The result: [batch, tokens, vocab].
Result<std::string> logits_program(const StepShape& s);

}  // namespace tessera::model
