// model/program.h: a step of training as one program: forward, backward and
// optimizer.
#pragma once

#include <string>
#include <vector>

#include "model/block.h"
#include "model/optimizer.h"

namespace tessera::model {

// All that is static about it.
struct StepShape {
  ModelConfig model;
  LayerSpec spec;
  int64_t batch = 1, tokens = 0;
  Element products = Element::f32;
  Element wide = Element::f32;            // f64 for tests of gradients
  bool recompute = false;                 // blocks keep their input alone
  bool drops_barriers = false;            // XLA's compiler for CPUs does
  bool gives_state = true;                // its memory may be the results'
  int64_t max_logits = int64_t{1} << 22;  // that are there at once
  OptimizerSettings optimizer;
  Mesh mesh;  // each of whose devices has a batch of its own
  // One for each mask; layer i has number i % size.
  std::vector<AttentionPlace> places;

  int64_t devices() const { return mesh.devices(); }
  const AttentionPlace& place_of(int64_t layer) const {
    return places[static_cast<size_t>(layer) % places.size()];
  }
};

// Those of a batch that have a number a token.
std::vector<std::string> column_names(const ModelConfig& model);
// Arrays of a device's batch, behind the model's state: int32 [batch, tokens],
// and what the plans bring.
std::vector<xla::Argument> batch_arguments(const StepShape& s);

// Slots in the order of a block: of each device, over all layers.
Result<std::vector<SlotWork>> step_work(const StepShape& s);

// Arguments: parameters, both moments of each (named by kStateNames), rates,
// the batch. Results: the first three anew, then loss, the norm of the
// gradients, tiles that attention visited. Where the state is given up the
// first three take its memory. On a mesh loss and gradients are those of all
// devices, and of tiles each has its own, [1].
Result<std::string> step_program(const StepShape& s);
// Arguments: parameters and the batch. Results: loss, tiles, and where asked
// for the gradients of the parameters.
Result<std::string> loss_program(const StepShape& s, bool gradients);
// Arguments: parameters and the batch. The result: [batch, tokens, vocab].
Result<std::string> logits_program(const StepShape& s);

}  // namespace tessera::model
