// model/parameter_parts.h: how many numbers parameters have, and which part of
// a parameter and its moments a device of a mesh has.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/train.h"

namespace tessera::model {

// The count of numbers in all arrays.
int64_t numbers_of(const std::vector<ModelParameter>& parameters);

// The axis that divides heads, the MLP's width and, if its size divides evenly,
// the vocabulary.
inline constexpr std::string_view kHeadAxis = "head";

// For each dimension of an array the axis that splits it, or "".
using Axes = std::vector<std::string>;
// The parameter's axes, with "" for those that the mesh does not have.
Axes axes_on(const Mesh& mesh, const ModelParameter& p);
bool is_split(const Mesh& mesh, const ModelParameter& p);
std::vector<int64_t> part_shape(const Mesh& mesh, const ModelParameter& p);

// A range of adjacent numbers in the whole array.
struct Run {
  int64_t begin = 0, size = 0;
};
// The runs of the n-th part along kHeadAxis, in the order in which its device
// stores them: a part of each section, one after the other.
std::vector<Run> runs_of(const ModelParameter& p, int64_t n, int64_t parts);

template <class T>
std::vector<T> take_part(const ModelParameter& p, const std::vector<T>& whole,
                         int64_t n, int64_t parts) {
  std::vector<T> out;
  out.reserve(whole.size() / static_cast<size_t>(parts));
  for (const Run& r : runs_of(p, n, parts)) {
    const auto from = whole.begin() + r.begin;
    out.insert(out.end(), from, from + r.size);
  }
  return out;
}

// The inverse of take_part().
template <class T>
void give_part(const ModelParameter& p, const std::vector<T>& part, int64_t n,
               int64_t parts, std::vector<T>& whole) {
  auto from = part.begin();
  for (const Run& r : runs_of(p, n, parts)) {
    std::copy_n(from, r.size, whole.begin() + r.begin);
    from += r.size;
  }
}

}  // namespace tessera::model
