// lanes/xla/shard_program.cc: the exchange around a device's own program.
#include "lanes/xla/shard_program.h"

#include <fmt/format.h>

#include <utility>

#include "lanes/xla/planned.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

// An axis that the mesh does not have splits nothing.
std::vector<std::string> axes_of(const Mesh& mesh,
                                 std::vector<std::string> names) {
  for (std::string& name : names) {
    if (!mesh.has(name)) name.clear();
  }
  return names;
}

// Tokens of dimension 2, before the exchange.
int64_t own_tokens(const Exchange& e) { return e.own * e.tokens; }

bool is_of_rows(const std::string& name) {
  return name != "k" && name != "v" && name != "dk" && name != "dv";
}

// [1, heads, tokens, ...] as the device has it before and after.
ShardArray own_part(const ShardShape& s, Argument a) {
  const Exchange& e = is_of_rows(a.name) ? s.rows : s.columns;
  a.type.dims[2] = own_tokens(e);
  std::vector<std::string> axes = {"data", "head", "seq"};
  axes.resize(a.type.dims.size());
  return {std::move(a), axes_of(s.mesh, std::move(axes)), false};
}

ShardArray own_integers(const ShardShape& s, std::string name, Dims dims) {
  std::vector<std::string> axes = {"data", "head", "seq"};
  axes.resize(3 + dims.size());
  dims.insert(dims.begin(), {1, 1, 1});
  return {{std::move(name), {Element::i32, std::move(dims)}},
          axes_of(s.mesh, std::move(axes)),
          true};
}

int64_t room(const Exchange& e) { return e.tiles() - e.own; }

}  // namespace

std::vector<ShardArray> shard_arguments(const ShardShape& s) {
  std::vector<ShardArray> out;
  const auto sends = [&](const Exchange& e) {
    if (room(e) > 0) out.push_back(own_integers(s, e.sends, {room(e)}));
  };
  sends(s.rows);
  sends(s.columns);
  for (Argument& a : arguments_of(s.local)) {
    if (a.type.element == Element::i32) {
      out.push_back(own_integers(s, std::move(a.name), a.type.dims));
    } else if (a.name == "sink_logits") {
      out.push_back({std::move(a), axes_of(s.mesh, {"head"}), false});
    } else {
      out.push_back(own_part(s, std::move(a)));
    }
  }
  return out;
}

std::vector<ShardArray> shard_results(const ShardShape& s) {
  const Shape& l = s.local;
  const Dims q_rows = {1, l.heads, l.q_len};
  std::vector<ShardArray> out;
  const auto array = [&](std::string name, Element element, Dims dims) {
    out.push_back(own_part(s, {std::move(name), {element, std::move(dims)}}));
  };
  if (l.backward) {
    array("dq", l.element, {1, l.heads, l.q_len, l.head_dim});
    array("dk", l.element, {1, l.kv_heads, l.kv_len, l.head_dim});
    array("dv", l.element, {1, l.kv_heads, l.kv_len, l.v_head_dim});
    if (l.sink_logits) {
      out.push_back({{"dsink_logits", {Element::f32, {1, 1, l.heads}}},
                     axes_of(s.mesh, {"data", "seq", "head"}),
                     false});
    }
  } else {
    array("out", l.element, {1, l.heads, l.q_len, l.v_head_dim});
    array("lse", Element::f32, q_rows);
  }
  out.push_back(own_integers(s, "tiles", {}));
  return out;
}

std::string shard_program_text(const ShardShape& s) {
  const std::vector<ShardArray> arguments = shard_arguments(s);
  const std::vector<ShardArray> results = shard_results(s);
  std::vector<Argument> parts;
  Writer::Spread spread;
  for (const ShardArray& a : arguments) {
    parts.push_back(a.part);
    spread.arguments.push_back(a.axes);
  }
  for (const ShardArray& a : results) spread.results.push_back(a.axes);
  for (const MeshAxis& a : s.mesh.axes) {
    spread.sizes.emplace_back(a.name, a.size);
  }

  Writer w(parts);
  for (const ShardArray& a : arguments) {
    if (!a.is_own) continue;
    const Dims& dims = a.part.type.dims;
    w.bind(a.part.name, w.reshape(w.argument(a.part.name),
                                  Dims(dims.begin() + 3, dims.end())));
  }
  for (const char* name : {"q", "k", "v", "out", "dout", "lse", "dlse"}) {
    if (!w.has_argument(name)) continue;
    const Exchange& e = is_of_rows(name) ? s.rows : s.columns;
    w.bind(name, gather_tiles(w, e, w.argument(name)));
  }
  Values made =
      s.local.backward ? write_backward(w, s.local) : write_forward(w, s.local);
  for (size_t i = 0; i < results.size(); ++i) {
    const ShardArray& to = results[i];
    const std::string& name = to.part.name;
    if (name == "dsink_logits" || name == "tiles") {
      made[i] = w.reshape(made[i], to.part.type.dims);
      continue;
    }
    // Each row has one device that computes it; keys may have many.
    made[i] = is_of_rows(name)
                  ? return_tiles(w, s.rows, made[i], Homecoming::in_place)
                  : return_tiles(w, s.columns, made[i], Homecoming::added);
    made[i] = w.convert(made[i], to.part.type.element);
  }
  return w.module(
      s.local.backward ? "tessera_sharded_backward" : "tessera_sharded_forward",
      made, spread);
}

std::vector<ArraySpec> shard_program_specs(const ShardShape& s) {
  std::vector<ArraySpec> out;
  const auto add = [&](std::string name, const ShardArray& a) {
    ArraySpec spec = {std::move(name), dtype_of(a.part.type.element),
                      a.part.type.dims, a.axes};
    for (size_t d = 0; d < a.axes.size(); ++d) {
      spec.shape[d] *= s.mesh.size(a.axes[d]);
    }
    out.push_back(std::move(spec));
  };
  for (const ShardArray& a : shard_arguments(s)) {
    add("all_" + a.part.name, a);
  }
  const std::vector<ShardArray> results = shard_results(s);
  for (size_t i = 0; i < results.size(); ++i) {
    add(fmt::format("result {}", i), results[i]);
  }
  return out;
}

}  // namespace tessera::xla
