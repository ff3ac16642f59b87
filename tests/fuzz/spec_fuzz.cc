// tests/fuzz/spec_fuzz.cc: any text either is a spec that means the same when
// written again, or gives an error.
#include <nlohmann/json.hpp>

#include "cli/request/spec.h"
#include "tests/fuzz/must.h"

using namespace tessera;
using namespace tessera::cli;

namespace {

std::string write(const RequestOptions& o) {
  nlohmann::json j = nlohmann::json::object();
  const auto put = [&](const char* key, const auto& value) {
    if (value) j[key] = *value;
  };
  if (!o.masks.empty()) j["mask"] = o.masks;
  if (!o.valid.empty()) j["valid"] = o.valid;
  put("q_len", o.q_len);
  put("kv_len", o.kv_len);
  put("batch", o.batch);
  put("q_offset", o.q_offset);
  put("tile", o.tile);
  put("logical_block", o.logical_block);
  put("docs", o.docs);
  put("q_docs", o.q_docs);
  put("prefix", o.prefix);
  put("picks", o.picks);
  put("target", o.target);
  put("max_steps", o.max_steps);
  put("max_width", o.max_width);
  put("max_union", o.max_union);
  return j.dump();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<RequestOptions> options = parse_spec(text);
  if (!options) {
    must(options.error().message.starts_with("[spec] "));
    must(options.error().message.find_first_of("\r\n") == std::string::npos);
    return 0;
  }
  const Result<RequestOptions> again = parse_spec(write(*options));
  must(again.ok() && *again == *options);
  return 0;
}
