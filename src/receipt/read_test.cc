// receipt/read_test.cc: tests the reader of receipts: schema, digest and
// contradictions between fields.
#include "receipt/read.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

#include "base/digest.h"
#include "base/files.h"
#include "receipt/fields.h"
#include "receipt/parts.h"
#include "tests/little_memory.h"
#include "tests/sample_receipts.h"

namespace tessera::receipt {
namespace {

const std::string kDigits(32, 'a');

Receipt example() {
  Receipt r;
  r.version = "0.1.0";
  r.lane = {"auto", "default", "cpu", "cpu", "native", "executed", {}};
  r.choice = {"plain causal",
              "the only device is a CPU",
              {{"xla", "a"},
               {"mosaic", "b"},
               {"jax_bridge", "c"},
               {"splash", "f"},
               {"cuda", "d"},
               {"reference", "e"}},
              {},
              {}};
  r.machine = {"A CPU", "Linux", 2, {"portable", "avx2"}, true, false, {}};
  r.isa = "avx2";
  r.threads = 2;
  r.device = "A CPU";
  r.request.masks = {"causal"};
  r.request.batch = "1";
  r.request.q_len = r.request.kv_len = "8";
  r.request.tile = "16x32";
  r.request.docs = "lengths:8";
  r.facts_digest = kDigits;
  r.shape = {{4, 2, 16, 8, {}, 30}, 0.25, "f32", "bhsd", true};
  r.inputs = {7, "", {{"q", kDigits}}, {"q"}};
  r.contract = r.plan_digest = r.output_digest = kDigits;
  r.tiles_run = 3;
  r.pairs_legal = 1000;
  r.pairs_run = 1024;
  r.forward_ms = 4;
  r.check = {"full", 10, 1e-7, 0.5, true, "out[0, 0, 0, 0]"};
  return r;
}

Receipt operation() { return testing::sample_operation(kDigits); }

// The receipt of two steps of `tessera train` on a mesh, after another run.
Receipt training() {
  Receipt r;
  r.kind = Kind::training;
  r.version = "0.1.0";
  r.operation = "train";
  r.plugin = Receipt::Plugin{"a.so", "0.81", "cpu", "v", "cpu 0", 0};
  r.inputs = {7, "rows", {{"rows", kDigits}, {"start", kDigits}}, {}};
  r.compiles = 1;
  r.warnings = {"full"};
  r.plan_ms = 1;
  r.run_ms = 2;
  Receipt::Training& t = r.training;
  t.spec = "xla";
  for (const std::string_view slot : allowed::kSlots) {
    t.slots[std::string(slot)] = "stablehlo";
  }
  t.model = R"({"layers":2})";
  t.parameters = 90;
  t.work = {{"norm", 0, 1, 2, 3, 4, 5, 6, 7},
            {"attention", {}, {}, 5, 0, 6, 7, 8, 9}};
  t.mesh = "data=2";
  t.specs = t.program = kDigits;
  t.exchange = Receipt::Training::Exchange{
      "rounds", "tasks", "steps=9;steps=8", "full=2", "work=2", 50, 60, 1.5};
  t.precision = {{"products", "BF16"}, {"softmax", "F32"}};
  t.rows = 2;
  t.tokens = 128;
  t.tile = "32x32";
  t.recompute = true;
  t.rate = 0.1;
  t.max_norm = 1;
  t.weight_decay = 0.2;
  t.warmup = 1;
  t.start = "state";
  t.first_step = 4;
  t.steps = 5;
  t.losses = {2.5, 0.1};
  t.counted = 500;
  t.tiles_run = 8;
  t.tiles_planned = 9;
  t.attention_flops = 1.5e9;
  t.seconds = 3;
  r.output_digest = kDigits;
  return r;
}

// A receipt with every field present.
Receipt fullest() {
  Receipt r = example();
  const auto keep = [&](std::optional<std::string>& text, const char* value) {
    text = value;
  };
  for (const RequestField& f : request_fields()) {
    if (f.is_given(r.request)) continue;
    if (const auto* one = std::get_if<0>(&f.member)) {
      keep(r.request.**one, "12");
    } else {
      r.request.*std::get<1>(f.member) = {"12"};
    }
  }
  GateRow row;
  row.kernel = "cpu/forward";
  row.mask = "causal";
  row.kernel_ms = row.plain_ms = row.factor = row.error = 1;
  row.kernel_cycles = row.plain_cycles = row.error_bar = 1;
  row.machine = "A CPU";
  row.generation = "v6e";
  row.tile = {512, 256};
  row.verdict = GateVerdict::promote;
  r.choice.gate = {row};
  r.choice.rule = "tpu kernels";
  r.machine.plugins = {{"p", "tpu", 2, "v6e"}};
  r.plugin = operation().plugin;
  r.artifact = operation().artifact;
  r.method = "dense";
  r.parameters = {{"fetch_ahead", 4}};
  r.plan_file = "a.plan";
  r.inputs.file = "a.safetensors";
  r.kernels = {{"forward", kDigits}};
  r.settings = {{"tile", "the request"}};
  r.routing = Receipt::Routing();
  r.sink_telemetry = Receipt::SinkTelemetry{
      4, kDigits, kDigits, {{0, 7, {8, 8}, {0.5, {}}, {1.25, 2}}}};
  r.shards = Receipt::Shards{"data=2,seq=2",
                             "rows",
                             "ragged",
                             "rows=4,kv=2:0",
                             "partial=3,full=2",
                             "work=1.5,tokens=1.02",
                             true,
                             {{"forward", kDigits}},
                             kDigits,
                             1.25,
                             1.5,
                             {3, 4, 5, 2, 9},
                             Receipt::Moved{30, 40, 50, 20, 90}};
  r.fallback = "so";
  r.warnings = {"full"};
  return r;
}

std::string message(const std::string& text) {
  const auto r = check_receipt(text);
  return r ? "" : r.error().message;
}

// The example with one change and a valid digest, for the other checks.
std::string with(const char* pointer, const Json& value) {
  Json r = Json::parse(receipt_json(example()));
  r[Json::json_pointer(pointer)] = value;
  r["receipt_digest"] = receipt_digest(r);
  return r.dump();
}

TEST(ReceiptSchema, IsTheFileInDocs) {
  const auto file = read_file("docs/receipt.schema.json", 1 << 20);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(*file, receipt_schema()) << "made by: tessera receipt schema";
  const auto table = read_file("docs/receipt_fields.md", 1 << 20);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_TRUE(table->ends_with(receipt_table()))
      << "made by: tessera receipt schema table";
}

// A fuzzer whose seeds are not receipts would never get past the schema.
TEST(ReceiptReader, SeedsOfItsFuzzerAreReceipts) {
  const std::filesystem::path folder("tests/fuzz/corpus/receipt");
  int seeds = 0;
  for (const auto& seed : std::filesystem::directory_iterator(folder)) {
    const auto text = read_file(seed.path().string(), 1 << 20);
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(message(*text), "")
        << seed.path() << ", made by: tests/fuzz/text_seeds.py";
    seeds += 1;
  }
  EXPECT_GE(seeds, 6);
}

// Collects the words of JSON schema that our schema uses.
void collect(const Json& schema, std::set<std::string>& words) {
  for (const auto& [key, value] : schema.items()) {
    words.insert(key);
    if (key == "properties" || key == "$defs") {
      for (const auto& [name, inner] : value.items()) collect(inner, words);
    } else if (key == "items" ||
               (key == "additionalProperties" && value.is_object())) {
      collect(value, words);
    } else if (key == "oneOf") {
      EXPECT_EQ(value, Json::parse(R"([{"$ref": "#/$defs/plan"},
                                       {"$ref": "#/$defs/operation"},
                                       {"$ref": "#/$defs/training"}])"));
    } else if (key == "anyOf") {
      ASSERT_EQ(value.size(), 2u);
      EXPECT_EQ(value[0], Json({{"type", "null"}}));
      collect(value[1], words);
    } else if (key == "minLength") {
      EXPECT_EQ(value, 1);
    } else if (key == "pattern") {
      EXPECT_EQ(value, "^[0-9a-f]{32}$");
    } else if (key == "additionalProperties") {
      EXPECT_EQ(value, false);
    }
  }
}

TEST(ReceiptSchema, UsesWordsThatTheReaderKnows) {
  std::set<std::string> words;
  collect(Json::parse(receipt_schema()), words);
  EXPECT_EQ(words,
            (std::set<std::string>{
                "$defs",      "$ref",     "$schema",     "additionalProperties",
                "anyOf",      "const",    "description", "enum",
                "items",      "maxItems", "maximum",     "minItems",
                "minLength",  "minimum",  "oneOf",       "pattern",
                "properties", "required", "title",       "type"}));
}

TEST(ReceiptReader, TakesWhatTheWriterWrites) {
  EXPECT_EQ(message(receipt_json(example())), "");
  EXPECT_EQ(message(receipt_json(example(), 2)), "");  // spaced otherwise
  EXPECT_EQ(message(receipt_json(operation())), "");
  EXPECT_EQ(message(receipt_json(training())), "");
}

// Every member is read back as it was written.
TEST(ReceiptReader, EveryFieldComesBack) {
  for (Receipt r : {example(), operation(), fullest(), training(), Receipt()}) {
    if (r.digest.empty()) seal(r);
    const std::string text = receipt_json(r);
    auto claim = parse_receipt(text);
    if (r.version.empty()) {  // texts that no row allows
      EXPECT_FALSE(claim.ok());
      continue;
    }
    ASSERT_TRUE(claim.ok()) << claim.error().message;
    EXPECT_EQ(fields_json(*claim).dump(), text);
    EXPECT_EQ(claim->misplaced, std::vector<std::string>());
    EXPECT_EQ(claim->digest, claim->digest_due);
    EXPECT_EQ(claim->request, r.request);
    EXPECT_EQ(claim->kind, r.kind);
  }
  const auto claim = parse_receipt(receipt_json(fullest()));
  EXPECT_EQ(claim->choice.gate.at(0).verdict, GateVerdict::promote);
  EXPECT_EQ(claim->choice.gate.at(0).tile, (Tile{512, 256}));
  EXPECT_EQ(claim->shape.attention.softcap, 30);
  EXPECT_EQ(claim->routing->settings, RouteSettings());
  EXPECT_EQ(claim->threads, 2);
}

// The fields of an object by their paths, objects among them.
void add_paths(const Json& object, const std::string& before,
               std::vector<std::string>& out) {
  for (const auto& [key, value] : object.items()) {
    const std::string path = before + "/" + key;
    out.push_back(path);
    if (value.is_object()) add_paths(value, path, out);
    if (value.is_array() && !value.empty() && value[0].is_object()) {
      add_paths(value[0], path + "/0", out);
    }
  }
}

// The path as errors name it: "/machine/plugins/0/name" becomes
// machine.plugins[0].name.
std::string name_of(std::string path) {
  const size_t item = path.find("/0");
  if (item != std::string::npos) path.replace(item, 2, "[0]");
  std::replace(path.begin(), path.end(), '/', '.');
  return path.substr(1);
}

// A field that is absent, of another type or unknown is refused by its path.
TEST(ReceiptReader, RefusesEveryFieldThatIsNotAsItMustBe) {
  const std::set<std::string> free_keys = {
      "/key/terms", "/kernels",         "/inputs/digests", "/parameters",
      "/settings",  "/choice/rejected", "/slots",          "/precision",
      "/model",     "/shards/specs"};
  for (const Receipt& r : {fullest(), operation(), training()}) {
    const Json good = Json::parse(receipt_json(r));
    std::vector<std::string> paths;
    add_paths(good, "", paths);
    EXPECT_GT(paths.size(), r.of_plan() ? 150u : 60u);
    for (const std::string& path : paths) {
      const Json::json_pointer at(path);
      const std::string parent = at.parent_pointer().to_string();
      const std::string name = name_of(path);
      if (parent == "/key/terms" || parent == "/model") continue;
      Json other = good;
      other[at] = Json::array({Json::array()});
      EXPECT_NE(message(other.dump()).find(name), std::string::npos) << name;
      if (free_keys.contains(parent) || parent == "/request" ||
          parent == "/check" || path == "/sink_telemetry" ||
          path == "/shards/ceilings" || path == "/shards/work" ||
          path == "/shards/evenness" || path == "/choice/gate/0/tile" ||
          path == "/exchange/ceilings" || path == "/exchange/work" ||
          path == "/exchange/evenness") {
        continue;  // may be absent
      }
      other = good;
      other[at.parent_pointer()].erase(at.back());
      // These two fields tell the kind of the receipt.
      if (path == "/operation" || path == "/spec") continue;
      EXPECT_EQ(message(other.dump()),
                "[receipt] every field must be there, found no " + name);
      if (!good[at].is_object() || free_keys.contains(path)) continue;
      other = good;
      other[at]["extra"] = 1;
      EXPECT_EQ(
          message(other.dump()),
          "[receipt] fields must be known ones, found '" + name + ".extra'");
    }
  }
}

// A text that may be null must be null, not empty.
TEST(ReceiptReader, RefusesEmptyTextsInPlaceOfNull) {
  std::set<std::string> refused;
  for (const Receipt& r : {fullest(), operation(), training()}) {
    const Json good = Json::parse(receipt_json(r));
    std::vector<std::string> paths;
    add_paths(good, "", paths);
    for (const std::string& path : paths) {
      if (path.starts_with("/key/terms") || path.starts_with("/model")) {
        continue;  // any JSON
      }
      const Json::json_pointer at(path);
      Json other = good;
      other[at] = nullptr;
      if (!good[at].is_string() || !parse_receipt(other.dump())) continue;
      other[at] = "";
      const auto claim = parse_receipt(other.dump());
      ASSERT_FALSE(claim.ok()) << path;
      const std::string name = name_of(path);
      if (claim.error().message ==
          "[receipt] " + name + " must be null or a text, found an empty one") {
        refused.insert(name);
      }
    }
  }
  EXPECT_EQ(
      refused,
      (std::set<std::string>{
          "artifact.file", "artifact.shapes_file", "choice.gate[0].generation",
          "choice.gate[0].machine", "choice.rule", "fallback", "inputs.file",
          "machine.plugins[0].generation", "mesh", "plan_file", "start"}));
}

// No claimed number makes the reader overflow.
TEST(ReceiptReader, TakesTheLargestNumbers) {
  Receipt r = example();
  r.compiles = r.cache_hits.memory = r.cache_hits.disk = INT64_MAX;
  r.shape.attention.head_dim = r.shape.attention.v_head_dim = INT64_MAX;
  r.pairs_legal = INT64_MAX;
  EXPECT_NE(message(receipt_json(r)).find("compiles and cache hits must come"),
            std::string::npos)
      << message(receipt_json(r));
}

TEST(ReceiptReader, FieldsGoWithTheirKind) {
  Json r = Json::parse(receipt_json(operation()));
  r["tiles"] = {{"run", 1}, {"skipped", 0}};
  EXPECT_EQ(message(r.dump()),
            "[receipt] fields must be known ones, found 'tiles'");
  r = Json::parse(receipt_json(example()));
  r["key"] = Json::object();
  EXPECT_EQ(message(r.dump()),
            "[receipt] fields must be known ones, found 'key'");
  r = Json::parse(receipt_json(example()));
  r["operation"] = "attention";
  EXPECT_EQ(message(r.dump()),
            "[receipt] every field must be there, found no name");
}

// The version is checked before any other field.
TEST(ReceiptReader, RefusesOtherVersionsByTheirNumber) {
  EXPECT_EQ(message(R"({"schema": 2, "operation": "attention"})"),
            "[receipt] schema must be 13, found the integer 2: another "
            "version wrote it");
  EXPECT_EQ(message(R"({"schema": 9})"),
            "[receipt] schema must be 13, found the integer 9: another "
            "version wrote it");
}

// A field that other fields require must be present, and one that they exclude
// must be absent.
TEST(ReceiptReader, FindsMisplacedFields) {
  Json r = Json::parse(receipt_json(example()));
  r["check"].erase("passed");
  r["receipt_digest"] = receipt_digest(r);
  EXPECT_NE(message(r.dump()).find("check.passed must be there just where"),
            std::string::npos)
      << message(r.dump());
  r = Json::parse(receipt_json(operation()));
  r["check"]["worst"] = "out[0]";
  r["receipt_digest"] = receipt_digest(r);
  EXPECT_NE(message(r.dump()).find("check.worst must be there just where"),
            std::string::npos)
      << message(r.dump());
}

TEST(ReceiptReader, FindsContradictionsOfOperations) {
  const auto found = [](const char* pointer, const Json& value) {
    Json r = Json::parse(receipt_json(operation()));
    r[Json::json_pointer(pointer)] = value;
    r["receipt_digest"] = receipt_digest(r);
    const std::string text = message(r.dump());
    const std::string start =
        "[receipt] fields must not contradict each other, found: ";
    return text.starts_with(start) ? text.substr(start.size()) : text;
  };
  const std::string lane =
      "an operation must have run on the jax_bridge lane, asked for by the "
      "command";
  EXPECT_EQ(found("/lane/executed", "cpu"), lane);
  EXPECT_EQ(found("/lane/requested", "auto"), lane);
  EXPECT_EQ(found("/lane/source", "flag"), lane);
  EXPECT_EQ(found("/lane/fallback_allowed", {"cpu"}), lane);
  EXPECT_EQ(found("/lane/runtime_mode", "compiled only"), lane);
  EXPECT_EQ(found("/fallback", "so"), lane);
  EXPECT_EQ(found("/lane/family", "native"),
            "lane.family must be tpu/jax for a bridge");
  EXPECT_EQ(found("/plugin", nullptr), "plugin must be there for a bridge");
  EXPECT_EQ(found("/compiles", 2),
            "compiles and cache hits must come to 1 for a bridge, found 2");
  EXPECT_EQ(found("/artifact", nullptr),
            "key.terms.artifact must be artifact.digest");
  EXPECT_EQ(found("/key/terms", Json::object()),
            "key.terms.artifact must be artifact.digest");
  EXPECT_EQ(found("/inputs/arrays", Json::array()),
            "inputs.digests must be of every input");
  EXPECT_EQ(found("/output/digest", nullptr),
            "output.digest must be there for a bridge");
}

TEST(ReceiptReader, RefusesWhatIsNotOne) {
  EXPECT_TRUE(message("").starts_with("[receipt] "));
  EXPECT_EQ(message("[]"),
            "[receipt] a receipt must be an object, found an array of 0");
  EXPECT_EQ(message("{}"),
            "[receipt] every field must be there, found no schema");
  EXPECT_EQ(message(with("/schema", 2)),
            "[receipt] schema must be 13, found the integer 2: another "
            "version wrote it");
  EXPECT_EQ(message(with("/more", 2)),
            "[receipt] fields must be known ones, found 'more'");
  EXPECT_EQ(message(with("/tiles/most", 2)),
            "[receipt] fields must be known ones, found 'tiles.most'");
  EXPECT_EQ(message(with("/tiles/run", -1)),
            "[receipt] tiles.run must be at least 0, found the integer -1");
  EXPECT_EQ(message(with("/tiles/run", 1.5)),
            "[receipt] tiles.run must be an integer, found the float 1.5");
  EXPECT_EQ(message(with("/contract", "xyz")),
            "[receipt] contract must be 32 hex digits, found the string 'xyz'");
  EXPECT_EQ(
      message(with("/isa", "sse")),
      "[receipt] isa must be one of "
      "[\"portable\",\"avx2\",\"avx512\",\"avx512bf16\",\"amx\"], found the "
      "string 'sse'");
  EXPECT_EQ(message(with("/check/passed", 1)),
            "[receipt] check.passed must be a boolean, found the integer 1");
  EXPECT_EQ(message(with("/request/mask", "causal")),
            "[receipt] request.mask must be an array, found the string "
            "'causal'");
  EXPECT_EQ(message(with("/lane/executed", "cuda")),
            "[receipt] lane.executed must be one of "
            "[\"cpu\",\"xla\",\"mosaic\",\"jax_bridge\",\"splash\","
            "\"reference\"], found the string 'cuda'");
  EXPECT_EQ(message(with("/lane/fallback_allowed", {"jax_bridge"})),
            "[receipt] lane.fallback_allowed[0] must be one of "
            "[\"cpu\",\"xla\",\"mosaic\",\"reference\"], found the string "
            "'jax_bridge'");
  EXPECT_EQ(message(with("/choice/gate",
                         Json::array({Json{{"kernel", "cpu/forward"}}}))),
            "[receipt] every field must be there, found no "
            "choice.gate[0].lane");
  EXPECT_EQ(message(with("/choice/gate", {{"kernel", "cpu/forward"}})),
            "[receipt] choice.gate must be an array, found an object");
  EXPECT_EQ(message(with("/choice/gate", Json(8, Json::object()))),
            "[receipt] choice.gate must hold at most 7 items, found an array "
            "of 8");
  EXPECT_EQ(message(with("/choice/rejected", {{"quantum", "a"}})),
            "[receipt] fields must be known ones, found "
            "'choice.rejected.quantum'");
  EXPECT_EQ(message(with("/machine/threads", int64_t{1} << 32)),
            "[receipt] machine.threads must be at most 1048576, found the "
            "integer 4294967296");
}

TEST(ReceiptReader, ATileOfAGateRowHasBothSides) {
  const Json good = Json::parse(receipt_json(fullest()));
  const auto told = [&](const Json& tile) {
    Json r = good;
    r["choice"]["gate"][0]["tile"] = tile;
    const auto claim = parse_receipt(r.dump());
    return claim ? "" : claim.error().message;
  };
  EXPECT_EQ(told({512, 256}), "");
  EXPECT_EQ(told(Json::array()),
            "[receipt] choice.gate[0].tile must hold at least 2 items, found "
            "an array of 0");
  EXPECT_EQ(told(Json::array({512})),
            "[receipt] choice.gate[0].tile must hold at least 2 items, found "
            "an array of 1");
  EXPECT_EQ(told({512, 256, 128}),
            "[receipt] choice.gate[0].tile must hold at most 2 items, found an "
            "array of 3");
}

TEST(ReceiptReader, RefusesNumbersThatAreNotFinite) {
  Receipt r = example();
  r.check.max_error = INFINITY;
  EXPECT_EQ(message(receipt_json(r)),
            "[receipt] numbers must be finite, found the string 'inf' for "
            "check.max_error");
  r.check.max_error = std::nan("");
  EXPECT_EQ(message(receipt_json(r)),
            "[receipt] numbers must be finite, found the string 'nan' for "
            "check.max_error");
  std::string text = receipt_json(example());
  const std::string total = "\"total\":4.0";
  text.replace(text.find(total), total.size(), "\"total\":1e999");
  EXPECT_TRUE(message(text).starts_with("[receipt] ")) << message(text);
  EXPECT_TRUE(message("{\"schema\": NaN}").starts_with("[receipt] "));
}

TEST(ReceiptReader, ChecksTheDigest) {
  Json r = Json::parse(receipt_json(example()));
  r["tiles"]["run"] = 4;
  EXPECT_TRUE(message(r.dump()).starts_with(
      "[receipt] receipt_digest must be that of the other fields, "));
  r["receipt_digest"] = receipt_digest(r);
  EXPECT_EQ(message(r.dump()), "");
}

TEST(ReceiptReader, TheDigestIsOfTheOtherFields) {
  EXPECT_EQ(receipt_digest(Json::object()), digest_of("{}"));
  for (const Json& others :
       {Json::object(), Json{{"a", 1}}, Json{{"z", {{"receipt_digest", 2}}}},
        Json{{"q\"\n\u00e9", {1.5, "\"", nullptr}}, {"z", Json::object()}}}) {
    Json r = others;
    r["receipt_digest"] = "any";
    EXPECT_EQ(receipt_digest(r), digest_of(others.dump())) << r;
  }
}

#ifndef TESSERA_SANITIZED
TEST(ReceiptReader, NoMemoryForADigestIsNoEndOfTheProcess) {
  std::string text = "{\"key\":[0";
  for (int i = 1; i < 250'000; ++i) text += ",0";
  text += "]}";
  const auto digest = [&] {
    const auto parsed = parse_json(text, "receipt");
    (void)receipt_digest(**parsed);
  };
  for (uint64_t room = 0; room <= 16; ++room) {
    EXPECT_TRUE(testing::ends_by_itself(room << 20, digest)) << room << " MiB";
  }
}
#endif

std::string found(const char* pointer, const Json& value) {
  const std::string text = message(with(pointer, value));
  const std::string start =
      "[receipt] fields must not contradict each other, found: ";
  return text.starts_with(start) ? text.substr(start.size()) : text;
}

// The batch has one row of 8 tokens, 4 heads and 1000 legal pairs.
TEST(ReceiptReader, FindsContradictionsOfSinkTelemetry) {
  const auto document = [](int64_t row, Json name, int64_t queries) {
    return Json{{"batch_row", row},
                {"document", std::move(name)},
                {"queries", {queries, queries, queries, queries}},
                {"mass", {0, 0.5, nullptr, 1}},
                {"entropy", {0, 1.5, nullptr, std::log(9)}}};
  };
  const Json good = {
      {"first_keys", 4},
      {"mass_digest", kDigits},
      {"entropy_digest", kDigits},
      {"documents", {document(0, 7, 5), document(0, nullptr, 3)}}};
  const auto told = [&](const char* pointer, const Json& value) {
    Json sinks = good;
    sinks[Json::json_pointer(pointer)] = value;
    return found("/sink_telemetry", sinks);
  };
  EXPECT_EQ(found("/sink_telemetry", good), "");
  EXPECT_EQ(told("/first_keys", 0),
            "sink_telemetry.first_keys must be from 1 to 1073741824");
  EXPECT_EQ(told("/documents/1/entropy", {1, 2, 3}),
            "sink_telemetry must have a number for every head");
  EXPECT_EQ(told("/documents/1/batch_row", 1),
            "sink_telemetry.batch_row must be one of the batch's, in order");
  EXPECT_EQ(told("/documents/1/document", 7),
            "sink_telemetry must name a document of a batch row once");
  EXPECT_EQ(told("/documents/0/queries/2", 0),
            "sink_telemetry must have a mass and an entropy of 0 where no "
            "query has a legal key");
  EXPECT_EQ(told("/documents/0/queries/0", 0), "");
  EXPECT_EQ(told("/documents/0/mass/3", 1.0000001),
            "sink_telemetry.mass must be at most 1");
  // log(9), for 8 keys and a sink logit, is 2.1972.
  EXPECT_EQ(told("/documents/0/entropy/1", 2.1973), "");
  EXPECT_EQ(told("/documents/0/entropy/1", 2.1975),
            "sink_telemetry.entropy must be at most the logarithm of the "
            "number of keys");
  EXPECT_EQ(told("/documents/1/queries/3", 4),
            "sink_telemetry.queries of a batch row must come to at most "
            "request.q_len");
  EXPECT_EQ(told("/documents", Json::array()),
            "sink_telemetry.queries must count some where there are legal "
            "pairs");
  // The queries of each of two batch rows.
  const auto of_two_rows = [&](int64_t first, int64_t second) {
    Json r = Json::parse(receipt_json(example()));
    r["request"]["batch"] = 2;
    r["sink_telemetry"] = good;
    r["sink_telemetry"]["documents"] = {document(first, 7, 8),
                                        document(second, 7, 8)};
    r["receipt_digest"] = receipt_digest(r);
    return message(r.dump());
  };
  EXPECT_EQ(of_two_rows(0, 1), "");
  EXPECT_NE(of_two_rows(1, 0).find("in order"), std::string::npos);
  // The 32 queries of all heads have at least one pair each.
  for (const int64_t pairs : {31, 32}) {
    Json r = Json::parse(receipt_json(example()));
    r["sink_telemetry"] = good;
    r["pairs"]["legal"] = pairs;
    r["receipt_digest"] = receipt_digest(r);
    EXPECT_EQ(message(r.dump()).find("sink_telemetry.queries must come to at "
                                     "most pairs.legal") != std::string::npos,
              pairs == 31);
  }
}

TEST(ReceiptReader, FindsContradictions) {
  EXPECT_EQ(found("/lane/executed", nullptr),
            "lane.executed must name a lane where one ran, and none else");
  EXPECT_EQ(found("/lane/runtime_mode", "compiled only"),
            "lane.executed must name a lane where one ran, and none else");
  EXPECT_EQ(found("/lane/executed", "reference"),
            "lane.executed must be lane.chosen or one of "
            "lane.fallback_allowed");
  EXPECT_EQ(found("/lane/source", "caller"),
            "lane.source must be default where the caller named no lane");
  EXPECT_EQ(found("/machine/isas", {"portable", "avx2", "avx2"}),
            "machine.isas must name an ISA once");
  EXPECT_EQ(found("/lane/fallback_allowed", {"cpu", "cpu"}),
            "lane.fallback_allowed must name a lane once");
  EXPECT_EQ(found("/lane/requested", "xla"),
            "lane.chosen must be lane.requested, unless that is auto");
  EXPECT_EQ(found("/fallback", "so"),
            "fallback must say why lane.executed is not lane.chosen");
  for (const char* family : {"tpu/jax", "tpu/mosaic", "tpu/splash", "tpu/xla",
                             "cuda", "xla", "reference"}) {
    EXPECT_EQ(found("/lane/family", family),
              "lane.family must be that of cpu and its plugin");
  }
  EXPECT_EQ(found("/isa", nullptr),
            "isa must be there for our own lanes alone");
  EXPECT_EQ(found("/method", "dense"),
            "method must be there for the xla lane alone");
  EXPECT_EQ(found("/numbers", "finite"),
            "numbers must be there for the mosaic lane alone");
  EXPECT_EQ(found("/row_sum", "exact"),
            "row_sum must be there for the mosaic lane alone");
  EXPECT_EQ(found("/compiles", 1),
            "compiles and cache hits must come to 0 for the cpu lane, found 1");
  EXPECT_EQ(found("/kernels", {{"forward", kDigits}}),
            "kernels must be 0 of the cpu lane");
  for (const double total : {5.0, 4.0000000001}) {
    EXPECT_EQ(found("/ms/total", total),
              "ms.total must be the sum of the others");
  }
  // A sum that overflows is never equal to the total.
  Json large = Json::parse(receipt_json(example()))["ms"];
  large["plan"] = large["prepare"] = 1e308;
  EXPECT_EQ(found("/ms", large), "ms.total must be the sum of the others");
  EXPECT_EQ(found("/gflops/useful", 5),
            "gflops.useful must be that of pairs.legal and ms");
  EXPECT_EQ(found("/check/max_bound_ratio", 1.5),
            "check.passed must follow from check.max_bound_ratio");
  EXPECT_EQ(found("/choice/rejected", {{"xla", "a"}}),
            "choice.rejected must give every other lane its reason");
  EXPECT_EQ(found("/output/digest", nullptr),
            "output.digest must be there where a lane ran, and nowhere else");
}

TEST(ReceiptReader, FindsContradictionsOfShards) {
  const Json moved = {{"needed", 5},
                      {"sent", 6},
                      {"capacity", 6},
                      {"busiest", 4},
                      {"all_gather", 3}};
  const Json good = {{"mesh", "seq=2"},
                     {"balance", "rows"},
                     {"uneven", false},
                     {"exchange", "rounds"},
                     {"specs", {{"forward", kDigits}}},
                     {"contract", kDigits},
                     {"work_max_over_mean", 1.0},
                     {"tokens_max_over_mean", 1.0},
                     {"forward", moved},
                     {"backward", moved}};
  Json r = Json::parse(receipt_json(example()));
  r["direction"] = "forward+backward";
  const auto told = [&](const char* pointer, const Json& value) {
    Json one = r;
    one["shards"] = good;
    one["shards"][Json::json_pointer(pointer)] = value;
    one["receipt_digest"] = receipt_digest(one);
    return message(one.dump());
  };
  const auto breaks = [&](const char* pointer, const Json& value,
                          const char* rule) {
    EXPECT_EQ(told("/mesh", "seq=2").find(rule), std::string::npos);
    EXPECT_NE(told(pointer, value).find(rule), std::string::npos)
        << told(pointer, value);
  };
  // The example ran on the cpu lane.
  EXPECT_NE(
      told("/mesh", "seq=2")
          .find("shards must be there for the lanes xla and mosaic alone"),
      std::string::npos);
  breaks("/backward", nullptr,
         "shards.backward must be there where gradients were computed");
  breaks("/forward/busiest", 6,
         "shards.forward.busiest must be at most shards.forward.needed");
  breaks("/forward/sent", 4,
         "shards.forward.busiest must be at most shards.forward.needed");
  breaks("/backward/needed", 7,
         "shards.backward.busiest must be at most shards.backward.needed");
  const char* const full =
      "shards.forward.sent must be shards.forward.capacity but of a ragged "
      "exchange";
  breaks("/forward/capacity", 7, full);
  EXPECT_EQ(told("/exchange", "ragged").find(full), std::string::npos);
  EXPECT_NE(told("/exchange", "ring").find("shards.exchange"),
            std::string::npos);
}

TEST(ReceiptReader, FindsContradictionsOfTrainingRuns) {
  const auto found = [](const char* pointer, const Json& value) {
    Json r = Json::parse(receipt_json(training()));
    r[Json::json_pointer(pointer)] = value;
    r["receipt_digest"] = receipt_digest(r);
    const std::string text = message(r.dump());
    const size_t at = text.find("found: ");
    return at == std::string::npos ? text : text.substr(at + 7);
  };
  EXPECT_EQ(found("/rate", 0.2), "");
  EXPECT_EQ(found("/operation", "attention"),
            "operation must be train for a training run");
  EXPECT_EQ(found("/plugin", nullptr),
            "plugin must be there for a training run");
  EXPECT_EQ(found("/compiles", 2),
            "compiles and cache hits must come to 1 for a training run, found "
            "2");
  EXPECT_EQ(found("/first_step", 6), "first_step must be 1 to steps");
  EXPECT_EQ(found("/losses", {1.0}),
            "losses must be of every step from first_step to steps");
  EXPECT_EQ(found("/steps", INT64_MAX),
            "losses must be of every step from first_step to steps");
  EXPECT_EQ(found("/specs", nullptr),
            "specs must be there for a mesh, and nowhere else");
  EXPECT_EQ(found("/exchange", nullptr), "");
  EXPECT_EQ(found("/exchange/kind", "gather"),
            "exchange.sent must be exchange.all_gather where all is gathered");
  EXPECT_EQ(found("/inputs/digests", {{"rows", kDigits}}),
            "inputs.digests must be of rows, and of start if any");
  EXPECT_EQ(found("/start", nullptr),
            "inputs.digests must be of rows, and of start if any");
  EXPECT_EQ(found("/slots", {{"norm", "stablehlo"}}),
            "slots must give every slot its factory");
  EXPECT_EQ(found("/tiles_run", 10), "tiles_run must be at most tiles_planned");
  EXPECT_EQ(found("/output/digest", nullptr),
            "output.digest must be there for a training run");
}

TEST(ReceiptReader, TellsDifferences) {
  Receipt other = example();
  other.tiles_run = 4;
  other.request.masks = {"full"};
  other.request.docs.reset();
  const auto d = diff_receipts(receipt_json(example()), receipt_json(other));
  ASSERT_TRUE(d.ok()) << d.error().message;
  std::vector<std::string> fields;
  for (const ReceiptDifference& one : *d) fields.push_back(one.field);
  EXPECT_EQ(fields, (std::vector<std::string>{"receipt_digest", "request.docs",
                                              "request.mask", "tiles.run"}));
  EXPECT_EQ((*d)[1].b, "");
  EXPECT_EQ((*d)[3].a, "3");
  EXPECT_EQ((*d)[3].b, "4");
  EXPECT_TRUE(
      diff_receipts(receipt_json(example()), receipt_json(example()))->empty());
  EXPECT_FALSE(diff_receipts("{}", receipt_json(example())).ok());
}

}  // namespace
}  // namespace tessera::receipt
