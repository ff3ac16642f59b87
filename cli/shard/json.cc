// cli/shard/json.cc: shards as JSON.
#include "base/dtype_word.h"
#include "cli/shard/report.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

json moved_json(const Moved& m) {
  return {{"needed_bytes", m.needed},
          {"sent_bytes", m.sent},
          {"capacity_bytes", m.capacity},
          {"busiest_bytes", m.busiest},
          {"all_gather_bytes", m.all_gather}};
}

json rounds_json(const Traffic& traffic) {
  json out = json::array();
  for (const Round& r : traffic.rounds) {
    out.push_back({{"shift", r.shift}, {"tiles", r.capacity}});
  }
  return out;
}

json one_json(const Shard& s) {
  return {{"data", s.data},
          {"head", s.head},
          {"seq", s.seq},
          {"batch_rows", {s.first_batch_row, s.batch_rows}},
          {"heads", {s.first_head, s.heads}},
          {"kv_heads", {s.first_kv_head, s.kv_heads}},
          {"rows", s.own_rows},
          {"columns", s.own_columns},
          {"steps", s.steps},
          {"steps_transposed", s.steps_transposed},
          {"work", s.work},
          {"early_work", s.early_work}};
}

json specs_json(const ShardProgramArrays& arrays) {
  json out = json::array();
  for (const auto* of : {&arrays.arguments, &arrays.results}) {
    for (const ArraySpec& s : *of) {
      out.push_back({{"name", s.name},
                     {"dtype", dtype_word(s.dtype)},
                     {"shape", s.shape},
                     {"axes", s.axes}});
    }
  }
  return out;
}

}  // namespace

json shard_json(const ShardRun& run) {
  const Shards& s = run.shards;
  const ShardReport& r = s.report;
  json shards = json::array();
  for (const Shard& one : s.shards) shards.push_back(one_json(one));
  const int64_t seq = s.mesh.size("seq");
  json pairs = json::array();
  for (int64_t from = 0; from < seq; ++from) {
    const auto at = r.kv_tiles.begin() + from * seq;
    pairs.push_back(std::vector<int64_t>(at, at + seq));
  }
  const ShardOptions& o = run.options;
  json out = {
      {"mesh", to_string(s.mesh)},
      {"balance", to_string(o.balance)},
      {"exchange", to_string(s.exchange)},
      {"work_max_over_mean", r.work_max_over_mean},
      {"tokens_max_over_mean", r.tokens_max_over_mean},
      {"early_work", r.early_work},
      {"needed_beside_all_gather",
       beside_all_gather(r.forward, r.forward.needed)},
      {"sent_beside_all_gather", beside_all_gather(r.forward, r.forward.sent)},
      {"least_beside_all_gather", beside_all_gather(r.forward, r.least_needed)},
      {"plan_ns", run.plan_ns},
      {"forward", moved_json(r.forward)},
      {"backward", moved_json(r.backward)},
      {"kv_tiles", std::move(pairs)},
      {"kv_rounds", rounds_json(s.kv)},
      {"q_rounds", rounds_json(s.q)},
      {"shapes",
       {{"own_rows", s.shapes.own_rows},
        {"rows", s.shapes.rows},
        {"own_columns", s.shapes.own_columns},
        {"columns", s.shapes.columns},
        {"steps", s.shapes.steps}}},
      {"ceilings", to_string(ceilings_of(s))},
      {"work", to_string(o.work)},
      {"evenness",
       seeks_evenness(o.balance) ? json(to_string(o.evenness)) : json()},
      {"specs", run.arrays ? specs_json(run.arrays->arrays) : json()},
      {"fingerprint", run.arrays ? json(run.arrays->fingerprint) : json()},
      {"query_chunk", run.arrays ? json(run.arrays->query_chunk) : json()},
      {"contract", s.contract_key},
      {"shards", std::move(shards)}};
  if (run.program) out["program"] = program_json(*run.program);
  return out;
}

std::span<const JsonField> shard_json_fields() {
  static constexpr JsonField kFields[] = {
      {"mesh, balance, exchange"},
      {"work_max_over_mean, tokens_max_over_mean"},
      {"early_work",
       "share of forward work that needs no tile of others: lane mosaic does "
       "it while tiles travel"},
      {"needed_beside_all_gather, sent_beside_all_gather",
       "forward; padding of static sizes is sent too"},
      {"least_beside_all_gather",
       "share that no way to spread rows so evenly avoids"},
      {"plan_ns",
       "from ids in memory to all shards, of this one run, and of a saved plan "
       "the shards alone: `tessera-bench shard` measures many"},
      {"{forward,backward}.{needed_bytes,sent_bytes,capacity_bytes,"
       "busiest_bytes,all_gather_bytes}"},
      {"kv_tiles", "by sender, then by receiver"},
      {"{kv_rounds,q_rounds}[].{shift,tiles}"},
      {"shapes.{own_rows,rows,own_columns,columns,steps}",
       "room of every shard"},
      {"ceilings", "as --ceilings takes them"},
      {"work", "weight of a tile, by its class"},
      {"evenness", "null where the balance seeks none"},
      {"specs[].{name,dtype,shape,axes}",
       "arguments and results of the program"},
      {"fingerprint", "digest of specs: a receipt's shards.specs"},
      {"query_chunk",
       "queries that lane mosaic holds at a time backward; 0: all"},
      {"contract"},
      {"shards[].{data,head,seq,batch_rows,heads,kv_heads,rows,columns,steps,"
       "steps_transposed,work,early_work}",
       "batch_rows, heads and kv_heads: the first and how many"},
      {"program.pass, program.target", "with --fit or --compile"},
      {"program.fit.NAME", "as `tessera fit` has it"},
      {"program.{calibrated,calibrated_on}",
       "with --compile; false: no times of this program are known; on this "
       "chip those of calibrated_on are"},
      {"program.collectives[].{name,op,bytes,asynchronous,ops_between,"
       "cycles_between,longest,kernels}",
       "with --compile: bytes of a device, of a ragged exchange its room; "
       "between a start and its end, where loops count one pass"},
  };
  return kFields;
}

}  // namespace tessera::cli
