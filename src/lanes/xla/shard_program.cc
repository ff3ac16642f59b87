// lanes/xla/shard_program.cc: arguments, results and text of the program.
#include "lanes/xla/shard_program.h"

#include <utility>

namespace tessera::xla {

std::vector<ShardArray> shard_arguments(const ShardShape& s) {
  std::vector<ShardArray> out = exchange_arrays(s);
  for (Argument& a : arguments_of(s.local)) {
    if (a.type.element == Element::i32) {
      out.push_back(own_integers(s, std::move(a.name), a.type.dims));
    } else if (a.name == "sink_logits") {
      out.push_back(of_heads(s, std::move(a.name), s.local.heads, false));
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
      out.push_back(of_heads(s, "dsink_logits", l.heads, true));
    }
  } else {
    array("out", l.element, {1, l.heads, l.q_len, l.v_head_dim});
    array("lse", Element::f32, q_rows);
  }
  out.push_back(own_integers(s, "tiles", {}));
  return out;
}

std::string program_text(const ShardShape& s) {
  return frame_program(
      s.local.backward ? "tessera_sharded_backward" : "tessera_sharded_forward",
      s, {shard_arguments(s), shard_results(s)},
      [&](Writer& w, const std::vector<Awaited>& awaited) {
        await_tiles(w, awaited, {});
        bind_all_tiles(w, s);
        std::vector<Made> out;
        for (Value& made : s.local.backward ? write_backward(w, s.local)
                                            : write_forward(w, s.local)) {
          out.push_back({std::move(made)});
        }
        return out;
      });
}

std::vector<ArraySpec> shard_program_specs(const ShardShape& s) {
  return frame_specs(s, {shard_arguments(s), shard_results(s)});
}

}  // namespace tessera::xla
