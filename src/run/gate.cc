// run/gate.cc: the table of what was measured: which row says something
// about a request, and its JSON.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/text.h"
#include "receipt/parts.h"
#include "tessera/contract.h"
#include "tessera/dispatch.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "gate";
constexpr int kSchema = 1;
constexpr size_t kMaxRows = 1 << 16;
constexpr double kMaxMs = 1e12;

// The value of that name among those that to_string gives.
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

Result<std::optional<double>> read_ms(const Json& value,
                                      std::string_view name) {
  if (value.is_null()) return std::optional<double>();
  auto ms = read_number(value, name, 1e-9, kMaxMs);
  if (!ms) return ms.error();
  return std::optional<double>(*ms);
}

// Whose kernels are measured against plain XLA.
bool has_kernels(LaneId lane) {
  return lane == LaneId::cpu || lane == LaneId::mosaic || lane == LaneId::cuda;
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

Result<GateRow> parse_row(const Json& j) {
  auto fields =
      check_fields(j, kWhere, "a row",
                   {"kernel",    "lane",     "machine",    "class",   "mask",
                    "direction", "dtype",    "q_len",      "kv_len",  "heads",
                    "kv_heads",  "head_dim", "v_head_dim", "softcap", "density",
                    "kernel_ms", "plain_ms", "plain",      "verdict", "why"});
  if (!fields) return fields.error();
  Reader r;
  GateRow row;
  row.kernel = r.take(read_line(j["kernel"], kWhere, "kernel"));
  const auto lane = read_string(j["lane"], kWhere, "lane");
  if (!lane) return lane.error();
  row.lane = r.take(parse_lane(*lane));
  if (!r.error() && !has_kernels(row.lane)) {
    return invalid(kWhere, "lane must be one of our kernels', found {}",
                   to_string(row.lane));
  }
  row.machine = r.take(read_line(j["machine"], kWhere, "machine"));
  row.request_class =
      r.take(read_word(j["class"], "class",
                       {RequestClass::sparse_blocks, RequestClass::custom,
                        RequestClass::plain_causal, RequestClass::other}));
  row.mask = r.take(read_line(j["mask"], kWhere, "mask"));
  const std::string direction =
      r.take(read_string(j["direction"], kWhere, "direction"));
  if (!r.error() && direction != "forward" && direction != "forward+backward") {
    return invalid(kWhere,
                   "direction must be forward or forward+backward, found {}",
                   in_quotes(direction));
  }
  row.backward = direction != "forward";
  row.dtype = r.take(read_dtype(j["dtype"]));
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
  row.kernel_ms = r.take(read_ms(j["kernel_ms"], "kernel_ms"));
  row.plain_ms = r.take(read_ms(j["plain_ms"], "plain_ms"));
  const auto plain = read_string(j["plain"], kWhere, "plain");
  if (!plain) return plain.error();
  row.plain = r.take(parse_xla_method(*plain));
  row.verdict =
      r.take(read_word(j["verdict"], "verdict",
                       {GateVerdict::promote, GateVerdict::experimental,
                        GateVerdict::drop, GateVerdict::unmeasured}));
  row.why = r.take(read_line(j["why"], kWhere, "why"));
  if (r.error()) return *r.error();
  if (!row.kernel.starts_with(fmt::format("{}/", to_string(row.lane)))) {
    return invalid(kWhere, "kernel must be one of its lane, {}, found {}",
                   to_string(row.lane), in_quotes(row.kernel));
  }
  if (row.shape.heads % row.shape.kv_heads != 0) {
    return invalid(kWhere, "kv_heads must divide heads, found {} for {}",
                   row.shape.kv_heads, row.shape.heads);
  }
  const bool measured = row.kernel_ms && row.plain_ms;
  const GateVerdict due = measured ? judge_gate(*row.kernel_ms, *row.plain_ms)
                                   : GateVerdict::unmeasured;
  if (row.verdict != due) {
    return invalid(
        kWhere, "a verdict must be that of its times, {}, found {} for {}",
        to_string(due), to_string(row.verdict), in_quotes(row.kernel));
  }
  return row;
}

}  // namespace

GateVerdict judge_gate(double kernel_ms, double plain_ms) {
  const double factor = plain_ms / kernel_ms;
  if (!(factor > kTieFactor)) return GateVerdict::drop;
  return factor > kPromoteFactor ? GateVerdict::promote
                                 : GateVerdict::experimental;
}

bool applies(const GateRow& row, const RequestFeatures& f,
             const PlanFacts& plan, const Machine& machine) {
  return row.verdict != GateVerdict::unmeasured && row.kernel_ms &&
         row.plain_ms && row.machine == machine.key() &&
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

Result<GateTable> parse_gate(std::string_view text) {
  auto json = parse_json(text, kWhere);
  if (!json) return json.error();
  auto fields =
      check_fields(*json, kWhere, "a gate table", {"schema", "rows"},
                   {"machine", "tessera", "quick", "plugin", "busy_cores"});
  if (!fields) return fields.error();
  auto schema = read_int((*json)["schema"], kWhere, "schema", kSchema, kSchema);
  if (!schema) return schema.error();
  const Json& rows = (*json)["rows"];
  if (!rows.is_array() || rows.size() > kMaxRows) {
    return invalid(kWhere, "rows must be an array of at most {}, found {}",
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

std::string gate_json(const GateTable& table) {
  Json rows = Json::array();
  for (const GateRow& row : table.rows)
    rows.push_back(Json(receipt::fields_json(row)));
  return Json{{"schema", kSchema}, {"rows", std::move(rows)}}.dump(2);
}

}  // namespace tessera
