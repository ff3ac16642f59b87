// model/loss.h: the training loss and its gradients.
#pragma once

#include "model/layer.h"

namespace tessera::model {

using xla::Compare;

// Logits of rows h by the head; with a cap, z is cap times `bent`.
struct Logits {
  Value z, bent;
};
Logits write_logits(const Site& at, const ModelConfig& model, const Value& h,
                    const Value& head);

// The rows of the head that a device has: those of the ids from `first` on; its
// partners have the others. No partners: the device has all rows.
struct VocabPart {
  Writer::Groups partners;
  Value first;
};

struct Loss {
  Value mean;     // sum of these rows' losses divided by `total`
  Value dhidden;  // gradient of hidden
  Value dhead;
};
// hidden [rows, width]; head [vocab, width] or a part of it; targets and counts
// [rows], where counts is 1 if a row's target counts, else 0. `total` is the
// number that count, here and on other devices. At most `max_logits` logits, or
// those of one row, exist at once.
Loss write_loss(const Site& at, const ModelConfig& model, const Value& hidden,
                const Value& head, const VocabPart& part, const Value& targets,
                const Value& counts, const Value& total, int64_t max_logits);

}  // namespace tessera::model
