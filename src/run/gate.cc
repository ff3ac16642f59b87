// run/gate.cc: the table of measured and predicted rows: which rows apply to a
// request, their verdicts and their JSON.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/text.h"
#include "plan/generation.h"
#include "receipt/parts.h"
#include "run/lane_rules.h"
#include "run/rules.h"
#include "schedule/chip.h"
#include "tessera/batch.h"
#include "tessera/dispatch.h"
#include "tessera/mask.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "gate";
constexpr int kSchema = 3;
constexpr size_t kMaxRows = 1 << 16;
constexpr double kMinMs = 1e-9, kMaxMs = 1e12;
constexpr double kMinCycles = 1, kMaxCycles = 1e18;
constexpr double kMaxFactor = kMaxMs / kMinMs;
constexpr double kMaxBusyCores = 1e6;

// The value in `all` whose to_string() is the text.
template <class Enum>
Result<Enum> read_word(const Json& value, std::string_view name,
                       std::initializer_list<Enum> all) {
  auto text = read_string(value, kWhere, name);
  if (!text) return text.error();
  for (const Enum e : all) {
    if (*text == to_string(e)) return e;
  }
  return invalid(kWhere, "{} must be a known word, found {}", name,
                 in_quotes(*text));
}

Result<Dtype> read_dtype(const Json& value) {
  auto text = read_string(value, kWhere, "dtype");
  if (!text) return text.error();
  for (const Dtype d : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    if (*text == dtype_word(d)) return d;
  }
  return invalid(kWhere, "dtype must be f32, bf16 or f16, found {}",
                 in_quotes(*text));
}

Result<double> read_number(const Json& value, std::string_view name,
                           double least, double most) {
  if (!value.is_number() || !std::isfinite(value.get<double>()) ||
      value.get<double>() < least || value.get<double>() > most) {
    return invalid(kWhere, "{} must be a number from {} to {}, found {}", name,
                   least, most, describe(value));
  }
  return value.get<double>();
}

Result<std::optional<double>> read_or_null(const Json& value,
                                           std::string_view name, double least,
                                           double most) {
  if (value.is_null()) return std::optional<double>();
  auto number = read_number(value, name, least, most);
  if (!number) return number.error();
  return std::optional<double>(*number);
}

// One line of text, not empty.
Result<std::string> read_text(const Json& value, std::string_view name,
                              std::string_view allowed = "a text") {
  auto line = read_line(value, kWhere, name);
  if (line && line->empty()) {
    return invalid(kWhere, "{} must be {}, found an empty one", name, allowed);
  }
  return line;
}

// Null reads as the empty text.
Result<std::string> read_text_or_null(const Json& value,
                                      std::string_view name) {
  if (value.is_null()) return std::string();
  return read_text(value, name, "null or a text");
}

Result<Tile> read_tile(const Json& value) {
  if (!value.is_array() || value.size() != 2) {
    return invalid(kWhere, "tile must be an array of 2, found {}",
                   describe(value));
  }
  auto q = read_int(value[0], kWhere, "tile", kMinBlock, kMaxBlock);
  if (!q) return q.error();
  auto kv = read_int(value[1], kWhere, "tile", kMinBlock, kMaxBlock);
  if (!kv) return kv.error();
  return Tile{*q, *kv};
}

// Whether the lane has kernels that a gate compares with plain XLA.
bool has_kernels(LaneId lane) {
  return lane == LaneId::cpu || lane == LaneId::mosaic ||
         lane == LaneId::splash || lane == LaneId::cuda;
}

// Keeps the first error of many reads.
class Reader {
 public:
  template <class T>
  T take(Result<T> result) {
    if (result) return std::move(*result);
    if (!error_) error_ = result.error();
    return T{};
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  std::optional<Error> error_;
};

// A row's two figures: ms if measured, cycles if predicted.
struct Figures {
  std::optional<double> kernel, plain;
  bool both() const { return kernel && plain; }
};
Figures figures_of(const GateRow& row) {
  if (row.basis == GateBasis::measured) return {row.kernel_ms, row.plain_ms};
  return {row.kernel_cycles, row.plain_cycles};
}

// A row must have the fields of its basis and none of the other basis.
Result<void> check_basis(const GateRow& row) {
  const auto refused = [&](std::string_view rule, std::string_view found) {
    return invalid(kWhere, "{}, found {} for {}", rule, found,
                   in_quotes(row.kernel));
  };
  if (row.basis == GateBasis::measured) {
    if (row.machine.empty() || !row.generation.empty()) {
      return refused("a measured row must have a machine and no generation",
                     row.machine.empty() ? "no machine" : "a generation");
    }
    if (row.kernel_cycles || row.plain_cycles || row.error_bar) {
      return refused("a measured row must have no cycles and no error_bar",
                     row.error_bar ? "an error_bar" : "cycles");
    }
    return {};
  }
  if (facts_of(row.lane).platform != "tpu" && row.lane != LaneId::splash) {
    return refused("a predicted row must be of a lane of TPUs",
                   to_string(row.lane));
  }
  if (!row.machine.empty() || row.generation.empty()) {
    return refused("a predicted row must have a generation and no machine",
                   row.generation.empty() ? "no generation" : "a machine");
  }
  if (auto e = plan::check_generation(kWhere, row.generation); !e) return e;
  if (row.kernel_ms || row.plain_ms) {
    return refused("a predicted row must have cycles and no ms", "ms");
  }
  if (row.error_bar.has_value() != row.kernel_cycles.has_value()) {
    return refused("cycles must have an error_bar, and nothing else may",
                   row.error_bar ? "one alone" : "none");
  }
  return {};
}

// The class is the one that features_of() gives for this mask and softcap.
Result<void> check_class(const GateRow& row) {
  auto mask = parse_mask(row.mask);
  if (!mask) {
    return invalid(kWhere, "mask must be an expression, found \"{}\" for {}",
                   mask.error().message, in_quotes(row.mask));
  }
  Request request;
  request.masks = {*std::move(mask)};
  const RequestClass due =
      features_of(request, {}, row.shape, {}).request_class;
  if (row.request_class == due) return {};
  return invalid(
      kWhere, "class must be that of mask and softcap, {}, found {} for {}",
      to_string(due), to_string(row.request_class), in_quotes(row.mask));
}

// The fields of a row must agree, except the verdict: it needs the other rows.
Result<void> check_row(const GateRow& row) {
  if (!row.kernel.starts_with(fmt::format("{}/", to_string(row.lane)))) {
    return invalid(kWhere, "kernel must be one of its lane, {}, found {}",
                   to_string(row.lane), in_quotes(row.kernel));
  }
  if (row.shape.heads % row.shape.kv_heads != 0) {
    return invalid(kWhere, "kv_heads must divide heads, found {} for {}",
                   row.shape.kv_heads, row.shape.heads);
  }
  if (auto e = check_class(row); !e) return e;
  if (auto e = check_basis(row); !e) return e;
  const Figures figures = figures_of(row);
  const auto refused = [&](std::string_view rule) {
    return invalid(kWhere, "{}, found other for {}", rule,
                   in_quotes(row.kernel));
  };
  if (figures.kernel.has_value() != figures.plain.has_value()) {
    return refused(
        "the kernel's figure and plain XLA's must both be there or neither");
  }
  if (figures.both() ? row.factor != *figures.plain / *figures.kernel
                     : row.factor.has_value()) {
    return refused(
        "factor must be plain XLA's figure over the kernel's, null without "
        "them");
  }
  const GateJudgement due = !row.error        ? GateJudgement::unjudged
                            : *row.error <= 1 ? GateJudgement::passed
                                              : GateJudgement::wrong;
  if (row.judgement != due) {
    return invalid(
        kWhere, "a judgement must be that of its error, {}, found {} for {}",
        to_string(due), to_string(row.judgement), in_quotes(row.kernel));
  }
  if (figures.both() && due == GateJudgement::wrong) {
    return refused("what is wrong must have no times and no cycles");
  }
  return {};
}

// What gate_json() adds to predicted rows is not kept, for it is made anew; but
// it must be true.
Result<void> check_known(const Json& j, const GateRow& row) {
  for (const char* name : {"calibrated", "calibrated_on"}) {
    if (!j.contains(name) || row.basis == GateBasis::predicted) continue;
    return invalid(kWhere, "a measured row must have no {}, found {} for {}",
                   name, describe(j[name]), in_quotes(row.kernel));
  }
  if (j.contains("calibrated") && j["calibrated"] != false) {
    return invalid(kWhere, "calibrated must be false, found {} for {}",
                   describe(j["calibrated"]), in_quotes(row.kernel));
  }
  if (!j.contains("calibrated_on")) return {};
  auto programs = read_text_or_null(j["calibrated_on"], "calibrated_on");
  return programs ? Result<void>() : programs.error();
}

void read_numbers(const Json& j, Reader& r, GateRow& row) {
  const auto size = [&](const char* name, int64_t most) {
    return r.take(read_int(j[name], kWhere, name, 1, most));
  };
  row.q_len = size("q_len", kMaxTokens);
  row.kv_len = size("kv_len", kMaxTokens);
  row.shape.heads = size("heads", kMaxHeads);
  row.shape.kv_heads = size("kv_heads", kMaxHeads);
  row.shape.head_dim = size("head_dim", kMaxHeadDim);
  row.shape.v_head_dim = size("v_head_dim", kMaxHeadDim);
  row.shape.softcap = r.take(read_number(j["softcap"], "softcap", 0, 1e30));
  row.density = r.take(read_number(j["density"], "density", 0, 1));
  const auto or_null = [&](const char* name, double least, double most) {
    return r.take(read_or_null(j[name], name, least, most));
  };
  row.kernel_ms = or_null("kernel_ms", kMinMs, kMaxMs);
  row.plain_ms = or_null("plain_ms", kMinMs, kMaxMs);
  row.kernel_cycles = or_null("kernel_cycles", kMinCycles, kMaxCycles);
  row.plain_cycles = or_null("plain_cycles", kMinCycles, kMaxCycles);
  row.error_bar = or_null("error_bar", 1, kMaxFactor);
  row.factor = or_null("factor", 1 / kMaxFactor, kMaxFactor);
  row.error = or_null("error", 0, kMaxGateError);
}

Result<GateRow> parse_row(const Json& j) {
  auto fields = check_fields(
      j, kWhere, "a row",
      {"kernel",       "lane",      "basis",          "machine",
       "generation",   "class",     "mask",           "direction",
       "dtype",        "q_len",     "kv_len",         "heads",
       "kv_heads",     "head_dim",  "v_head_dim",     "softcap",
       "density",      "kernel_ms", "plain_ms",       "kernel_cycles",
       "plain_cycles", "error_bar", "plain",          "factor",
       "judgement",    "error",     "shape_per_step", "verdict",
       "why"},
      {"tile", "calibrated", "calibrated_on"});
  if (!fields) return fields.error();
  Reader r;
  GateRow row;
  row.kernel = r.take(read_line(j["kernel"], kWhere, "kernel"));
  const auto lane = read_string(j["lane"], kWhere, "lane");
  if (!lane) return lane.error();
  row.lane = r.take(parse_lane(*lane));
  if (!r.error() && !has_kernels(row.lane)) {
    return invalid(kWhere, "lane must be one that has kernels, found {}",
                   to_string(row.lane));
  }
  row.basis = r.take(read_word(j["basis"], "basis",
                               {GateBasis::measured, GateBasis::predicted}));
  row.machine = r.take(read_text_or_null(j["machine"], "machine"));
  row.generation = r.take(read_text_or_null(j["generation"], "generation"));
  row.request_class =
      r.take(read_word(j["class"], "class",
                       {RequestClass::sparse_blocks, RequestClass::custom,
                        RequestClass::plain_causal, RequestClass::other}));
  row.mask = r.take(read_text(j["mask"], "mask"));
  const std::string direction =
      r.take(read_string(j["direction"], kWhere, "direction"));
  if (!r.error() && direction != "forward" && direction != "forward+backward") {
    return invalid(kWhere,
                   "direction must be forward or forward+backward, found {}",
                   in_quotes(direction));
  }
  row.backward = direction != "forward";
  row.dtype = r.take(read_dtype(j["dtype"]));
  read_numbers(j, r, row);
  if (j.contains("tile")) row.tile = r.take(read_tile(j["tile"]));
  row.judgement = r.take(read_word(
      j["judgement"], "judgement",
      {GateJudgement::passed, GateJudgement::wrong, GateJudgement::unjudged}));
  row.shape_per_step =
      r.take(read_bool(j["shape_per_step"], kWhere, "shape_per_step"));
  const auto plain = read_string(j["plain"], kWhere, "plain");
  if (!plain) return plain.error();
  row.plain = r.take(parse_xla_method(*plain));
  row.verdict = r.take(
      read_word(j["verdict"], "verdict",
                {GateVerdict::promote, GateVerdict::experimental,
                 GateVerdict::drop, GateVerdict::wrong, GateVerdict::unjudged,
                 GateVerdict::out_of_hot_loop, GateVerdict::unmeasured}));
  row.why = r.take(read_line(j["why"], kWhere, "why"));
  if (r.error()) return *r.error();
  if (auto e = check_row(row); !e) return e.error();
  if (auto e = check_known(j, row); !e) return e.error();
  return row;
}

// Checks the optional fields that say how the table was made.
Result<void> check_making(const Json& table) {
  Reader r;
  for (const char* name : {"machine", "tessera", "plugin"}) {
    if (table.contains(name)) r.take(read_text(table[name], name));
  }
  if (table.contains("quick")) {
    r.take(read_bool(table["quick"], kWhere, "quick"));
  }
  if (table.contains("busy_cores")) {
    r.take(read_number(table["busy_cores"], "busy_cores", 0, kMaxBusyCores));
  }
  if (r.error()) return *r.error();
  return {};
}

// What a row is about, without the direction.
using ShapeClass = std::tuple<RequestClass, Dtype, int64_t, int64_t, int64_t,
                              int64_t, bool, bool, int>;
ShapeClass shape_class(const GateRow& row) {
  return {row.request_class,
          row.dtype,
          bucket(row.q_len),
          bucket(row.kv_len),
          row.shape.head_dim,
          row.shape.v_head_dim,
          row.shape.heads == row.shape.kv_heads,
          row.shape.softcap != 0,
          density_class(row.density)};
}

GateVerdict judge_kernel(const std::vector<const GateRow*>& rows) {
  bool timed = false, unjudged = false, per_step = false;
  std::map<ShapeClass, bool> classes;
  for (const GateRow* row : rows) {
    if (row->judgement == GateJudgement::wrong) return GateVerdict::wrong;
    per_step |= row->shape_per_step;
    if (!row->factor) continue;
    timed = true;
    unjudged |= row->judgement != GateJudgement::passed;
    const auto [at, unused] = classes.try_emplace(shape_class(*row), true);
    at->second = at->second && wins(*row);
  }
  if (per_step) return GateVerdict::out_of_hot_loop;
  if (!timed) return GateVerdict::unmeasured;
  if (unjudged) return GateVerdict::unjudged;
  const int64_t wins =
      std::ranges::count_if(classes, [](const auto& c) { return c.second; });
  if (wins == 0) return GateVerdict::drop;
  const bool few = wins < kFewShapeClasses ||
                   2 * wins < static_cast<int64_t>(classes.size());
  return few ? GateVerdict::experimental : GateVerdict::promote;
}

// The order of verdicts, worst highest. A kernel's verdict is at least as bad
// as that of any of its rows alone.
int badness(GateVerdict verdict) {
  switch (verdict) {
    case GateVerdict::wrong:
      return 3;
    case GateVerdict::out_of_hot_loop:
      return 2;
    case GateVerdict::unjudged:
      return 1;
    case GateVerdict::promote:
    case GateVerdict::experimental:
    case GateVerdict::drop:
    case GateVerdict::unmeasured:
      break;
  }
  return 0;
}

}  // namespace

bool wins(const GateRow& row) {
  if (row.basis == GateBasis::measured) {
    return row.factor && *row.factor > kWinFactor;
  }
  return row.factor && row.error_bar && *row.factor > *row.error_bar;
}

void set_verdicts(GateTable& table) {
  std::map<std::tuple<std::string_view, std::string_view, std::string_view>,
           std::vector<const GateRow*>>
      kernels;
  for (const GateRow& row : table.rows) {
    kernels[{row.kernel, row.machine, row.generation}].push_back(&row);
  }
  std::map<const GateRow*, GateVerdict> due;
  for (const auto& [name, rows] : kernels) {
    const GateVerdict verdict = judge_kernel(rows);
    for (const GateRow* row : rows) due[row] = verdict;
  }
  for (GateRow& row : table.rows) row.verdict = due[&row];
}

Result<void> run::check_verdict_alone(const GateRow& row) {
  const GateVerdict alone = judge_kernel({&row});
  if (badness(row.verdict) >= badness(alone)) return {};
  return invalid(kWhere,
                 "a row that is {} must have no better verdict, found {} for "
                 "{}",
                 to_string(alone), to_string(row.verdict),
                 in_quotes(row.kernel));
}

bool speaks_for(const GateRow& row, const Machine& machine) {
  if (row.basis == GateBasis::measured) return row.machine == machine.key();
  const MachinePlugin* device = run::first_device(machine);
  return device && !row.generation.empty() &&
         device->generation == row.generation;
}

bool bars(const GateRow& row, LaneId lane, const RequestFeatures& f,
          const Machine& machine) {
  const bool never = row.verdict == GateVerdict::wrong ||
                     row.verdict == GateVerdict::out_of_hot_loop;
  return never && row.lane == lane && speaks_for(row, machine) &&
         (f.call.backward || !row.backward);
}

bool applies(const GateRow& row, const RequestFeatures& f,
             const PlanFacts& plan, const Machine& machine) {
  const bool decides = row.verdict == GateVerdict::promote ||
                       row.verdict == GateVerdict::experimental ||
                       row.verdict == GateVerdict::drop;
  const bool whole = row.basis == GateBasis::measured ||
                     (figures_of(row).both() && row.error_bar);
  return decides && row.factor && whole && speaks_for(row, machine) &&
         row.request_class == f.request_class &&
         row.backward == f.call.backward && row.dtype == f.call.dtype &&
         row.shape.head_dim == f.shape.head_dim &&
         row.shape.v_head_dim == f.shape.v_head_dim &&
         (row.shape.heads == row.shape.kv_heads) ==
             (f.shape.heads == f.shape.kv_heads) &&
         (row.shape.softcap != 0) == (f.shape.softcap != 0) &&
         bucket(row.q_len) == bucket(f.q_len) &&
         bucket(row.kv_len) == bucket(f.kv_len) &&
         density_class(row.density) == density_class(plan.density());
}

Result<GateTable> run::parse_gate_rows(std::string_view text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  auto fields =
      check_fields(json, kWhere, "a gate table", {"schema", "rows"},
                   {"machine", "tessera", "quick", "plugin", "busy_cores"});
  if (!fields) return fields.error();
  if (json["schema"] != kSchema) {
    return invalid(kWhere,
                   "schema must be {}, found {}: another version wrote it, "
                   "record it again",
                   kSchema, describe(json["schema"]));
  }
  if (auto e = check_making(json); !e) return e.error();
  const Json& rows = json["rows"];
  if (!rows.is_array() || rows.empty() || rows.size() > kMaxRows) {
    return invalid(kWhere, "rows must be an array of 1 to {}, found {}",
                   kMaxRows, describe(rows));
  }
  GateTable out;
  for (const Json& j : rows) {
    auto row = parse_row(j);
    if (!row) return row.error();
    out.rows.push_back(std::move(*row));
  }
  return out;
}

Result<GateTable> parse_gate(std::string_view text) {
  auto table = run::parse_gate_rows(text);
  if (!table) return table.error();
  GateTable due = *table;
  set_verdicts(due);
  for (size_t i = 0; i < due.rows.size(); ++i) {
    const GateRow& row = table->rows[i];
    if (row.verdict == due.rows[i].verdict) continue;
    return invalid(kWhere,
                   "a verdict must be that of all its kernel's rows, {}, found "
                   "{} for {}",
                   to_string(due.rows[i].verdict), to_string(row.verdict),
                   in_quotes(row.kernel));
  }
  return table;
}

std::string gate_json(const GateTable& table) {
  Json rows = Json::array();
  for (const GateRow& row : table.rows) {
    rows.push_back(Json(receipt::fields_json(row)));
    if (row.basis == GateBasis::predicted) {
      schedule::add_known(rows.back(), row.generation);
    }
  }
  return Json{{"schema", kSchema}, {"rows", std::move(rows)}}.dump(2);
}

}  // namespace tessera
