// lanes/mosaic/shards.cc: puts the exchange of the xla lane around the calls.
#include "lanes/mosaic/shards.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/settings.h"
#include "lanes/tensors.h"
#include "lanes/xla/planned.h"
#include "plan/batch_state.h"

namespace tessera {
namespace mosaic {
namespace {

using xla::ShardArray;
using Values = xla::Writer::Values;

struct OwnArray {
  std::string_view array;
  std::string_view names[3];  // early, late or only, last
};
constexpr OwnArray kOwnArrays[] = {
    {"steps", {"early_steps", "steps", "last_steps"}},
    {"range", {"early_range", "range", "last_range"}},
    {"bits_of", {"early_bits_of", "bits_of", "last_bits_of"}},
    {"rows", {"early_rows", "rows", "last_rows"}},
};

// Most arrays of received keys: each is an operand of the kernel, and a branch
// of the code that fetches a tile.
constexpr size_t kMaxCameArrays = 8;

Values came_arrays(xla::Writer& w, const xla::ShardFrame& frame,
                   std::string_view array) {
  Values out = xla::came_parts(w, frame, array);
  if (came_arrays_of(frame.columns).size() < out.size()) {
    out = {w.join(out, 2)};
  }
  return out;
}

// "k_1" to "k" and 1.
std::pair<std::string_view, size_t> part_of(std::string_view name) {
  const size_t at = name.find('_');
  if (at == name.npos) return {name, 0};
  const char* const end = name.data() + name.size();
  size_t part = 0;
  const auto read = std::from_chars(name.data() + at + 1, end, part);
  if (read.ec != std::errc() || read.ptr != end) return {name, 0};
  return {name.substr(0, at), part};
}

// Arrays with one number per query are [batch, heads, 1, queries] only to the
// kernel.
bool is_line(const std::string& name) {
  return name == "lse" || name == "dlse";
}

xla::Argument around_kernel(const Argument& a) {
  xla::Type type = type_of(a);
  if (is_line(a.name)) type.dims.erase(type.dims.begin() + 2);
  return {a.name, std::move(type)};
}

// The kernel of one call, made from that over all tiles; `first` is the turn of
// the pass's first call.
ShardCall call_of(Turn turn, Turn first, PlannedKernel kernel,
                  const xla::Exchange& keys) {
  KernelShape& s = kernel.shape;
  const int64_t own = keys.own * keys.tokens;
  const std::vector<int64_t> came = came_arrays_of(keys);
  if (turn == Turn::early || turn == Turn::last) {
    s.kv_len = own;
  } else if (turn == Turn::late && kernel.kernel.call.backward) {
    s.kv_len = keys.max_received() * keys.tokens;
    if (came.size() > 1) s.key_parts = came;
  } else if (turn == Turn::late && !came.empty()) {
    s.key_parts = {own};
    s.key_parts.insert(s.key_parts.end(), came.begin(), came.end());
  }
  kernel.kernel.kv_len = s.kv_len;
  s.late = turn != first;
  s.late_columns = turn == Turn::last && first == Turn::early;
  return {turn, std::move(kernel)};
}

// Results of the whole pass: all but the sums that calls hand to each other.
std::vector<Argument> results_of(const ShardKernel& kernel) {
  std::vector<Argument> out = arrays_of(kernel.planned).results;
  std::erase_if(out, [](const Argument& a) { return is_kept(a.name); });
  return out;
}

// Writes the calls of a device's program, one after the other.
class CallWriter {
 public:
  CallWriter(xla::Writer& w, const ShardKernel& shard, std::string_view label,
             const KernelCall& call)
      : w_(w), shard_(shard), label_(label), call_(call) {}

  std::vector<xla::Made> write(const std::vector<xla::Awaited>& awaited) {
    for (const ShardCall& c : shard_.calls) {
      if (c.turn != Turn::early && !came_) await(awaited);
      add(c);
    }
    std::vector<xla::Made> out;
    for (const Argument& a : results_of(shard_)) out.push_back(result(a));
    return out;
  }

 private:
  void add(const ShardCall& c) {
    const CallArrays arrays = arrays_of(c.kernel);
    Values inputs;
    for (const Argument& a : arrays.inputs) {
      inputs.push_back(w_.reshape(input(c, a), a.type.shape));
    }
    made_.push_back(call_(w_, c.kernel, call_label(label_, c.turn), inputs));
    for (size_t i = 0; i < made_.back().size(); ++i) {
      const std::string& name = arrays.results[i].name;
      // No later call continues these: gradients of received keys are sent home
      // from this call's arrays, and sums of chunks stay within the call.
      if (is_apart(c) && xla::is_of_keys(part_of(name).first)) continue;
      if (is_of_chunks(name)) continue;
      before_[before(name)] = made_.back()[i];
    }
  }

  void await(const std::vector<xla::Awaited>& awaited) {
    Values made;
    for (const auto& [name, value] : before_) made.push_back(value);
    made = xla::await_tiles(w_, awaited, made);
    for (size_t i = 0; auto& [name, value] : before_) value = made[i++];
    came_ = true;
  }

  // Whether the call has the received keys alone: backward, the late one.
  static bool is_apart(const ShardCall& c) {
    return c.kernel.kernel.call.backward && c.turn == Turn::late;
  }

  xla::Value input(const ShardCall& c, const Argument& a) {
    if (a.name.ends_with(kBefore)) return before_.at(a.name);
    if (const std::string_view own = own_name(c.turn, a.name); !own.empty()) {
      return w_.argument(own);
    }
    if (a.name == "kv_ids") return key_ids(a, is_apart(c));
    if (const auto [array, part] = part_of(a.name); xla::is_of_keys(array)) {
      if (!is_apart(c) && part == 0) return w_.argument(array);
      const Values came = came_arrays(w_, shard_.frame, array);
      return came[is_apart(c) ? part : part - 1];
    }
    if (type_of(a).element == xla::Element::i32 || a.name == "sink_logits") {
      return w_.argument(a.name);
    }
    return c.turn == Turn::early ? padded(a.name)
                                 : xla::all_tiles(w_, shard_.frame, a.name);
  }

  // Ids of the device's own keys, of the received ones, or of all.
  xla::Value key_ids(const Argument& a, bool came) {
    const xla::Value& all = w_.argument(a.name);
    const int64_t lines = all.dims()[1];
    const int64_t own = a.type.shape[1];
    return came ? w_.part(all, 1, lines - own, lines) : w_.part(all, 1, 0, own);
  }

  // The device's own queries, with zeros in place of received ones, which the
  // early call does not have yet.
  xla::Value padded(const std::string& name) {
    const xla::Value& own = w_.argument(name);
    if (!xla::comes(shard_.frame, name)) return own;
    const xla::Exchange& e = shard_.frame.rows;
    xla::Dims dims = own.dims();
    dims[2] = e.max_received() * e.tokens;
    const xla::Value none = w_.real(0, dims, own.type.element);
    return w_.join(std::array{own, none}, 2);
  }

  // What the calls made of one result.
  xla::Made result(const Argument& a) {
    const std::string& name = a.name;
    xla::Made out = {last_made(name)};
    if (name == "dsink_logits") {
      for (size_t c = 0; c + 1 < shard_.calls.size(); ++c) {
        out.own = w_.add(made_of(c, name), out.own);
      }
      // All lanes hold the same number.
      out.own = w_.part(out.own, 2, 0, 1);
    }
    if (is_line(name))
      out.own = w_.reshape(out.own, around_kernel(a).type.dims);
    if (!xla::is_of_keys(name)) return out;
    for (size_t c = 0; c < shard_.calls.size(); ++c) {
      if (shard_.calls[c].turn != Turn::late) continue;
      const size_t parts = shard_.calls[c].kernel.shape.key_parts.size();
      for (size_t i = 0; i < std::max<size_t>(1, parts); ++i) {
        out.came.push_back(made_of(c, key_part(name, i)));
      }
    }
    return out;
  }
  xla::Value made_of(size_t call, const std::string& name) {
    const std::vector<Argument> results =
        arrays_of(shard_.calls[call].kernel).results;
    const auto at = std::ranges::find(results, name, &Argument::name);
    return made_[call][static_cast<size_t>(at - results.begin())];
  }
  xla::Value last_made(const std::string& name) {
    return made_of(shard_.calls.size() - 1, name);
  }

  xla::Writer& w_;
  const ShardKernel& shard_;
  std::string_view label_;
  const KernelCall& call_;
  std::vector<Values> made_;                  // by each call
  std::map<std::string, xla::Value> before_;  // what the calls so far gave
  bool came_ = false;
};

}  // namespace

std::vector<int64_t> came_arrays_of(const xla::Exchange& keys) {
  std::vector<int64_t> out = keys.came_tokens();
  if (out.size() > kMaxCameArrays) out = {keys.max_received() * keys.tokens};
  return out;
}

std::vector<Turn> turns_of(const xla::ShardFrame& frame, bool backward) {
  const bool queries = frame.rows.max_received() > 0;
  const bool keys = frame.columns.max_received() > 0;
  if (!backward && (queries || keys)) return {Turn::early, Turn::late};
  if (!keys) return {Turn::only};
  if (queries) return {Turn::late, Turn::last};
  return {Turn::early, Turn::late, Turn::last};
}

std::string_view own_name(Turn turn, std::string_view array) {
  const size_t at = turn == Turn::early ? 0 : turn == Turn::last ? 2 : 1;
  for (const OwnArray& own : kOwnArrays) {
    if (own.array == array) return own.names[at];
  }
  return {};
}

std::string call_label(std::string_view label, Turn turn) {
  std::string out(label);
  if (turn == Turn::early) out += "_early";
  if (turn == Turn::last) out += "_last";
  return out;
}

Result<ShardKernel> plan_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const MosaicOptions& options) {
  if (auto e = lanes::check_factors("mosaic", call.shape); !e) return e.error();
  xla::ShardFrame frame = xla::frame_of(shards);
  const std::vector<Turn> turns = turns_of(frame, call.backward);
  auto planned =
      plan_shard_kernel(batch, shards, call, target, options, turns.size() > 1);
  if (!planned) return planned.error();
  ShardKernel out = {std::move(*planned), {}, std::move(frame), {}};
  for (const Turn turn : turns) {
    out.calls.push_back(
        call_of(turn, turns.front(), out.planned, out.frame.columns));
  }
  out.specs = spec_fingerprint(shards.mesh,
                               xla::frame_specs(out.frame, arrays_of(out)));
  out.planned.kernel.contract = contract_of(out.planned, target, out.specs);
  return out;
}

Result<FittedShards> fit_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const KernelTerms& terms, int64_t query_chunk) {
  const auto plan = [&](const MosaicOptions& options) {
    return plan_shards(batch, shards, call, target, options);
  };
  ChosenSetting asked = choose_passes(batch.request(), call);
  take_terms(terms, call, asked.setting.options);
  asked.setting.options.query_chunk = query_chunk;
  asked.chosen_by += borrowed_words(asked.setting, call, target, true);
  auto planned = plan(asked.setting.options);
  const auto is_taken = [&](bool in_chunks) {
    return planned.ok() && (in_chunks || query_chunk > 0 ||
                            planned->planned.kernel.query_chunk == 0);
  };
  ChosenSetting chosen = asked;
  if (!is_taken(false)) {
    chosen = fit_or_chunk(
        asked, {}, call, target,
        [&](const Tile&, const MosaicOptions& options, bool in_chunks) {
          planned = plan(options);
          return is_taken(in_chunks);
        });
  }
  if (!planned) return plan(asked.setting.options).error();
  return FittedShards{std::move(*planned), std::move(chosen.chosen_by)};
}

int64_t shard_steps_in(const ShardKernel& kernel,
                       std::span<const MosaicArray> arrays) {
  int64_t out = 0;
  for (const ShardCall& c : kernel.calls) {
    const MosaicArray& whole = *std::ranges::find(
        arrays, own_name(c.turn, "range"), &MosaicArray::name);
    const std::span<const int32_t> values = whole.values;
    const auto of_device = static_cast<size_t>(whole.shape.back());
    for (size_t at = 0; at < values.size(); at += of_device) {
      out += steps_in(kernel.planned.kernel, values.subspan(at, of_device));
    }
  }
  return out;
}

xla::ShardArrays arrays_of(const ShardKernel& kernel) {
  const std::vector<Argument> inputs = arrays_of(kernel.planned).inputs;
  const xla::ShardFrame& frame = kernel.frame;
  const int64_t heads = kernel.planned.shape.heads;
  xla::ShardArrays out;
  out.arguments = xla::exchange_arrays(frame);
  // Integers first.
  std::vector<ShardArray> others;
  for (const Argument& a : inputs) {
    if (!own_name(Turn::only, a.name).empty()) continue;
    xla::Argument own = around_kernel(a);
    if (own.type.element == xla::Element::i32) {
      out.arguments.push_back(
          own_integers(frame, std::move(own.name), std::move(own.type.dims)));
    } else if (own.name == "sink_logits") {
      others.push_back(of_heads(frame, std::move(own.name), heads, false));
    } else {
      others.push_back(own_part(frame, std::move(own)));
    }
  }
  for (const ShardCall& c : kernel.calls) {
    for (const Argument& a : arrays_of(c.kernel).inputs) {
      const std::string name(own_name(c.turn, a.name));
      if (name.empty()) continue;
      out.arguments.push_back(own_integers(frame, name, a.type.shape));
    }
  }
  out.arguments.insert(out.arguments.end(), others.begin(), others.end());
  for (const Argument& a : results_of(kernel)) {
    if (a.name == "dsink_logits") {
      out.results.push_back(of_heads(frame, a.name, heads, true));
      continue;
    }
    xla::Argument own = around_kernel(a);
    // The program rounds dK and dV to the call's type after it has added the
    // sums of several devices.
    if (own.name == "dk" || own.name == "dv") {
      own.type.element = xla::element_of(kernel.planned.shape.dtype);
    }
    out.results.push_back(own_part(frame, std::move(own)));
  }
  return out;
}

std::vector<xla::Made> write_calls(xla::Writer& w, const ShardKernel& kernel,
                                   const std::vector<xla::Awaited>& awaited,
                                   std::string_view label,
                                   const KernelCall& call) {
  return CallWriter(w, kernel, label, call).write(awaited);
}

std::string program_text(const ShardKernel& kernel, const KernelCall& call) {
  const bool backward = kernel.planned.kernel.call.backward;
  return xla::frame_program(
      backward ? "tessera_sharded_backward" : "tessera_sharded_forward",
      kernel.frame, arrays_of(kernel),
      [&](xla::Writer& w, const std::vector<xla::Awaited>& awaited) {
        return write_calls(w, kernel, awaited, name_of(kernel.planned), call);
      });
}

}  // namespace mosaic

Result<MosaicKernel> make_mosaic_shards(const Batch& batch,
                                        const Shards& shards,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options) {
  if (auto read = plan::read_batch(batch, "mosaic"); !read) {
    return read.error();
  }
  auto planned = mosaic::plan_shards(batch, shards, call, target, options);
  if (!planned) return planned.error();
  MosaicKernel out = planned->planned.kernel;
  out.text = mosaic::text_of(planned->planned);
  out.program_text = mosaic::program_text(*planned);
  out.of_mesh =
      xla::program_arrays(planned->frame, mosaic::arrays_of(*planned));
  return out;
}

}  // namespace tessera
