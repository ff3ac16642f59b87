// tests/arrow_maker.h: Arrow arrays and streams made by hand, in place of a
// foreign producer. Exported structs are counted, so that a test can check that
// all were released.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/documents.h"

namespace tessera::testing {

// An array and its type. An absent buffer is exported as a null pointer.
struct MadeArray {
  std::string format, name;
  int64_t length = 0, offset = 0, null_count = 0;
  std::vector<std::optional<std::string>> buffers;
  std::vector<MadeArray> children;
  std::shared_ptr<MadeArray> dictionary;
};

inline int64_t& handed_over() {
  static int64_t count = 0;
  return count;
}

// The memory that an exported struct owns, with its children.
template <class T>
struct Exported {
  MadeArray made;
  std::vector<const void*> buffers;
  std::vector<T> children;
  std::vector<T*> pointers;
  T dictionary = {};

  void own_children() {
    for (T& child : children) pointers.push_back(&child);
  }
  static void release(T* self) {
    auto* const owned = static_cast<Exported*>(self->private_data);
    for (T& child : owned->children) {
      if (child.release != nullptr) child.release(&child);
    }
    if (owned->dictionary.release != nullptr) {
      owned->dictionary.release(&owned->dictionary);
    }
    self->release = nullptr;
    delete owned;
    --handed_over();
  }
};

inline ArrowSchema schema_of(const MadeArray& made) {
  auto* const owned = new Exported<ArrowSchema>{made, {}, {}, {}, {}};
  for (const MadeArray& child : made.children) {
    owned->children.push_back(schema_of(child));
  }
  owned->own_children();
  ArrowSchema out = {};
  out.format = owned->made.format.c_str();
  out.name = owned->made.name.c_str();
  out.n_children = static_cast<int64_t>(owned->children.size());
  out.children = owned->pointers.data();
  if (made.dictionary) {
    owned->dictionary = schema_of(*made.dictionary);
    out.dictionary = &owned->dictionary;
  }
  out.release = Exported<ArrowSchema>::release;
  out.private_data = owned;
  ++handed_over();
  return out;
}

inline ArrowArray array_of(const MadeArray& made) {
  auto* const owned = new Exported<ArrowArray>{made, {}, {}, {}, {}};
  for (const std::optional<std::string>& buffer : owned->made.buffers) {
    owned->buffers.push_back(buffer ? buffer->data() : nullptr);
  }
  for (const MadeArray& child : made.children) {
    owned->children.push_back(array_of(child));
  }
  owned->own_children();
  ArrowArray out = {};
  out.length = made.length;
  out.offset = made.offset;
  out.null_count = made.null_count;
  out.n_buffers = static_cast<int64_t>(owned->buffers.size());
  out.buffers = owned->buffers.data();
  out.n_children = static_cast<int64_t>(owned->children.size());
  out.children = owned->pointers.data();
  if (made.dictionary) {
    owned->dictionary = array_of(*made.dictionary);
    out.dictionary = &owned->dictionary;
  }
  out.release = Exported<ArrowArray>::release;
  out.private_data = owned;
  ++handed_over();
  return out;
}

struct MadeStream {
  MadeArray schema;  // its format and children's
  std::vector<MadeArray> batches;
  size_t fails_at = SIZE_MAX;  // get_next of this batch
  bool schema_fails = false;
  // Changes that a broken producer makes to exported structs.
  std::function<void(ArrowSchema&)> spoil_schema;
  std::function<void(ArrowArray&)> spoil_batch;
};

inline ArrowArrayStream stream_of(MadeStream made) {
  struct State {
    MadeStream made;
    size_t next = 0;
  };
  const auto state = [](ArrowArrayStream* s) {
    return static_cast<State*>(s->private_data);
  };
  static const auto of = state;
  ArrowArrayStream out = {};
  out.private_data = new State{std::move(made), 0};
  out.get_schema = [](ArrowArrayStream* s, ArrowSchema* to) {
    State& my = *of(s);
    if (my.made.schema_fails) return 12;
    *to = schema_of(my.made.schema);
    if (my.made.spoil_schema) my.made.spoil_schema(*to);
    return 0;
  };
  out.get_next = [](ArrowArrayStream* s, ArrowArray* to) {
    State& my = *of(s);
    if (my.next == my.made.fails_at) return 5;
    if (my.next == my.made.batches.size()) {
      to->release = nullptr;
      return 0;
    }
    *to = array_of(my.made.batches[my.next++]);
    if (my.made.spoil_batch) my.made.spoil_batch(*to);
    return 0;
  };
  out.get_last_error = [](ArrowArrayStream*) { return "the disk is gone"; };
  out.release = [](ArrowArrayStream* s) {
    delete of(s);
    s->release = nullptr;
    --handed_over();
  };
  ++handed_over();
  return out;
}

// Arrays of plain values; an absent value is null.
using Number = std::optional<int64_t>;

inline std::optional<std::string> null_bits(const std::vector<bool>& there) {
  std::string bits((there.size() + 7) / 8 + 1, '\0');
  for (size_t i = 0; i < there.size(); ++i) {
    if (there[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << (i % 8));
  }
  return bits;
}

template <class T>
void append(std::string& buffer, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  buffer.append(bytes, sizeof(T));
}

// Integers of a one-letter format: "c" to "L", or "b".
inline MadeArray integers(const std::string& format,
                          const std::vector<Number>& values) {
  MadeArray made;
  made.format = format;
  made.length = static_cast<int64_t>(values.size());
  std::vector<bool> there, bits;
  std::string data;
  for (const Number& value : values) {
    there.push_back(value.has_value());
    made.null_count += value ? 0 : 1;
    const int64_t n =
        value.value_or(-77);  // the value of a null may be anything
    bits.push_back((n & 1) != 0);
    if (format == "c" || format == "C") append(data, static_cast<int8_t>(n));
    if (format == "s" || format == "S") append(data, static_cast<int16_t>(n));
    if (format == "i" || format == "I") append(data, static_cast<int32_t>(n));
    if (format == "l" || format == "L") append(data, n);
  }
  if (format == "b") data = *null_bits(bits);
  made.buffers = {std::nullopt, data};
  if (made.null_count > 0) made.buffers[0] = null_bits(there);
  return made;
}

// Lists of consecutive items; `counts` has their lengths, -1 for null.
inline MadeArray lists(const std::string& format,
                       const std::vector<int64_t>& counts, MadeArray items) {
  MadeArray made;
  made.format = format;
  made.length = static_cast<int64_t>(counts.size());
  std::vector<bool> there;
  std::string offsets;
  int64_t at = 0;
  const auto add = [&](int64_t n) {
    if (format == "+L") append(offsets, n);
    if (format == "+l") append(offsets, static_cast<int32_t>(n));
  };
  add(at);
  for (const int64_t n : counts) {
    there.push_back(n >= 0);
    made.null_count += n >= 0 ? 0 : 1;
    at += std::max<int64_t>(n, 0);
    add(at);
  }
  made.buffers = {std::nullopt, offsets};
  if (format.starts_with("+w")) made.buffers.pop_back();
  if (made.null_count > 0) made.buffers[0] = null_bits(there);
  made.children.push_back(std::move(items));
  return made;
}

inline MadeArray texts(const std::string& format,
                       const std::vector<std::optional<std::string>>& values) {
  MadeArray made;
  made.format = format;
  made.length = static_cast<int64_t>(values.size());
  std::vector<bool> there;
  std::string offsets, data, views;
  const auto add = [&] {
    if (format == "U") append(offsets, static_cast<int64_t>(data.size()));
    if (format == "u") append(offsets, static_cast<int32_t>(data.size()));
  };
  add();
  for (const std::optional<std::string>& value : values) {
    there.push_back(value.has_value());
    made.null_count += value ? 0 : 1;
    std::string text = value.value_or("");
    data += text;
    add();
    append(views, static_cast<int32_t>(text.size()));
    text.resize(12, '\0');
    views += text;
  }
  if (format == "vu") {
    made.buffers = {std::nullopt, views, std::string(8, '\0')};
  } else {
    made.buffers = {std::nullopt, offsets, data + " "};
  }
  if (made.null_count > 0) made.buffers[0] = null_bits(there);
  return made;
}

inline MadeArray batch_of(
    std::vector<std::pair<std::string, MadeArray>> columns) {
  MadeArray made;
  made.format = "+s";
  made.buffers = {std::nullopt};
  for (auto& [name, column] : columns) {
    column.name = name;
    made.length = column.length;
    made.children.push_back(std::move(column));
  }
  return made;
}

}  // namespace tessera::testing
