// model/loss.h: what is trained for.
#pragma once

#include "model/layer.h"

namespace tessera::model {

using xla::Compare;

// Of rows h by the head; where the model caps them, z is cap times `bent`.
struct Logits {
  Value z, bent;
};
Logits write_logits(const Site& at, const ModelConfig& model, const Value& h,
                    const Value& head);

// Which rows of the head a device has: those of the ids from `first` on, its
// partners the others. No partners: it has all.
struct VocabPart {
  Writer::Groups partners;
  Value first;
};

struct Loss {
  Value mean;     // the losses of these rows over `total`
  Value dhidden;  // its gradients
  Value dhead;
};
// hidden [rows, width], head [vocab, width] or a part of it, targets and counts
// [rows]: 1 where a row's target counts, else 0; `total` do, of these rows and
// of those that others have. At most `max_logits` logits are there at
// once, or those of one row.
Loss write_loss(const Site& at, const ModelConfig& model, const Value& hidden,
                const Value& head, const VocabPart& part, const Value& targets,
                const Value& counts, const Value& total, int64_t max_logits);

}  // namespace tessera::model
