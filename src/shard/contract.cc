// shard/contract.cc: the token arrays of a sharded call, and the contract of a
// program for all shards.
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "shard/groups.h"

namespace tessera::shard {
namespace {

using Json = nlohmann::json;

Json rounds_json(const std::vector<Round>& rounds) {
  Json out = Json::array();
  for (const Round& r : rounds) out.push_back({r.shift, r.capacity});
  return out;
}

}  // namespace

std::vector<ArraySpec> specs_of(const Shards& shards,
                                const ShardOptions& options) {
  const Mesh& mesh = shards.mesh;
  const ShardShapes& s = shards.shapes;
  const int64_t data = mesh.size("data");
  const int64_t head = mesh.size("head");
  const int64_t seq = mesh.size("seq");
  const int64_t q_tokens = seq * s.own_rows * shards.tile.q;
  const int64_t kv_tokens = seq * s.own_columns * shards.tile.kv;
  const int64_t heads = head * s.heads;
  const int64_t kv_heads = head * s.kv_heads;
  const AttentionShape& shape = options.shape;
  std::vector<ArraySpec> out;
  const auto add = [&](const char* name, Dtype dtype,
                       std::vector<int64_t> dims) {
    // A role that the mesh lacks splits nothing.
    std::vector<std::string> axes = {mesh.name_of("data"), mesh.name_of("head"),
                                     mesh.name_of("seq")};
    axes.resize(dims.size());
    out.push_back({name, dtype, std::move(dims), std::move(axes)});
  };
  for (const char* name : {"q", "dq"}) {
    add(name, options.dtype, {data, heads, q_tokens, shape.head_dim});
  }
  for (const char* name : {"k", "dk"}) {
    add(name, options.dtype, {data, kv_heads, kv_tokens, shape.head_dim});
  }
  for (const char* name : {"v", "dv"}) {
    add(name, options.dtype, {data, kv_heads, kv_tokens, shape.v_head_dim});
  }
  for (const char* name : {"out", "dout"}) {
    add(name, options.dtype, {data, heads, q_tokens, shape.v_head_dim});
  }
  add("lse", Dtype::f32, {data, heads, q_tokens});
  return out;
}

void set_contract(const PlanContract& plan, Shards& shards) {
  Json terms = Json::parse(plan.text);
  // These terms count tiles of the whole batch, which no shard has.
  for (const char* name : {"steps", "width", "width_transposed"}) {
    terms.erase(name);
  }
  const ShardShapes& s = shards.shapes;
  Json text = {
      {"version", 0},
      {"plan", std::move(terms)},
      {"mesh", to_string(shards.mesh)},
      {"specs", shards.fingerprint},
      {"own_rows", s.own_rows},
      {"rows", s.rows},
      {"own_columns", s.own_columns},
      {"columns", s.columns},
      {"steps", s.steps},
      {"kv_rounds", rounds_json(shards.kv.rounds)},
      {"q_rounds", rounds_json(shards.q.rounds)},
  };
  if (shards.exchange != TileExchange::rounds) {
    text["exchange"] = to_string(shards.exchange);
  }
  shards.contract_text = text.dump();
  shards.contract_key = digest_of(shards.contract_text);
}

}  // namespace tessera::shard
