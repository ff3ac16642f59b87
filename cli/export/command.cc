// cli/export/command.cc: `tessera export`: a plan's other layouts as arrays.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/plan/report.h"
#include "cli/request/file_checks.h"
#include "cli/request/flags.h"
#include "tessera/contract.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::cli {
namespace {

struct Options {
  RequestFlags request;
  std::optional<std::string> layout, out, batch_row, heads, q_shards,
      tiles_per_pass;
  bool dkv = false;
  bool no_shrink = false;
  bool computable = false;
  bool no_mask_blocks = false;
  bool json = false;
};

struct Source {
  const Batch& batch;
  const Plan& plan;  // the batch's
  const Options& options;
};

using Shape = std::vector<int64_t>;

// Named arrays on their way to a file; owns their bytes.
class Arrays {
 public:
  template <class T>
  void add(const std::string& name, Dtype dtype, Shape shape,
           const std::vector<T>& values) {
    add_bytes(name, dtype, std::move(shape),
              std::string(bytes_of(std::span<const T>(values))));
  }
  void add_bytes(const std::string& name, Dtype dtype, Shape shape,
                 std::string bytes) {
    bytes_.push_back(std::move(bytes));
    file_.tensors[name] = {dtype, std::move(shape), bytes_.back()};
  }
  const Safetensors& file() const { return file_; }

 private:
  Safetensors file_;
  std::list<std::string> bytes_;  // its strings never move
};

int64_t count(const auto& values) {
  return static_cast<int64_t>(values.size());
}

Result<void> add_lists(const Source& s, Arrays& out) {
  const std::pair<const char*, const Worklist*> lists[] = {
      {"forward", &s.plan.forward}, {"transposed", &s.plan.transposed}};
  for (const auto& [name, w] : lists) {
    std::vector<int32_t> column;
    std::vector<uint8_t> tile_class;
    for (const Entry& e : w->entries) {
      column.push_back(static_cast<int32_t>(e.column()));
      tile_class.push_back(static_cast<uint8_t>(e.tile_class()));
    }
    const std::string prefix = name;
    const std::vector<int32_t> start(w->row_start.begin(), w->row_start.end());
    out.add(prefix + ".row_start", Dtype::i32, {count(start)}, start);
    out.add(prefix + ".column", Dtype::i32, {count(column)}, column);
    out.add(prefix + ".class", Dtype::u8, {count(tile_class)}, tile_class);
  }
  return {};
}

Result<void> add_steps(const Source& s, Arrays& out) {
  for (const bool transposed : {false, true}) {
    auto steps = pack_steps(s.plan, transposed);
    if (!steps) return steps.error();
    const std::string prefix = transposed ? "transposed" : "forward";
    std::vector<int32_t> words;  // safetensors readers lack unsigned 32 bits
    for (const Step& step : steps->steps) {
      words.push_back(static_cast<int32_t>(step.word));
    }
    const std::vector<int32_t> range(steps->range.begin(), steps->range.end());
    out.add(prefix + ".steps", Dtype::i32, {count(words)}, words);
    out.add(prefix + ".range", Dtype::i32, {count(range)}, range);
  }
  return {};
}

Result<void> add_rectangle(const Source& s, Arrays& out) {
  const std::pair<const char*, const Worklist*> lists[] = {
      {"forward", &s.plan.forward}, {"transposed", &s.plan.transposed}};
  for (const auto& [name, w] : lists) {
    auto r = make_rectangle(*w, bucket(grid_width(*w)));
    if (!r) return r.error();
    const std::string prefix = name;
    const Shape shape = {s.plan.batch, s.plan.heads, r->rows, r->width};
    out.add(prefix + ".column", Dtype::i32, shape, r->column);
    out.add(prefix + ".class", Dtype::u8, shape, r->tile_class);
    // The same by the names that Splash has for them.
    out.add(prefix + ".data_next", Dtype::i32, shape, r->column);
    out.add(prefix + ".block_mask", Dtype::u8, shape, r->tile_class);
    out.add(prefix + ".grid_width", Dtype::i32, {1},
            std::vector{static_cast<int32_t>(r->width)});
    if (s.options.no_mask_blocks) continue;
    auto masks = make_mask_blocks(s.batch, w == &s.plan.transposed, r->width);
    if (!masks && masks.error().kind == ErrorKind::limit) {
      return over_limit("export",
                        "partial_mask_blocks must fit {} bytes, found more "
                        "(--no-mask-blocks leaves them out)",
                        kMaxLayoutBytes);
    }
    if (!masks) return masks.error();
    const int64_t area = masks->rows * masks->columns;
    out.add(prefix + ".mask_next", Dtype::i32, shape, masks->mask_next);
    out.add(prefix + ".partial_mask_blocks", Dtype::boolean,
            {count(masks->blocks) / area, masks->rows, masks->columns},
            masks->blocks);
  }
  return {};
}

Result<void> add_bitmaps(const Source& s, Arrays& out) {
  auto b = make_bitmaps(s.batch);
  if (!b) return b.error();
  const int64_t distinct =
      b->words_per_tile > 0 ? count(b->words) / b->words_per_tile : 0;
  out.add("words", Dtype::i64, {distinct, b->words_per_tile}, b->words);
  out.add("of_entry", Dtype::i32, {count(b->of_entry)}, b->of_entry);
  return add_lists(s, out);
}

Result<void> add_flex(const Source& s, Arrays& out) {
  auto heads =
      parse_int(s.options.heads.value_or("0"), "--heads", 0, kMaxTiles);
  if (!heads) return heads.error();
  auto mask = make_flex(s.plan, *heads);
  if (!mask) return mask.error();
  auto add = [&](const std::string& prefix, const std::string& of,
                 const FlexLists& lists, int64_t rows, int64_t columns) {
    out.add(prefix + of + "_num_blocks", Dtype::i32,
            {mask->batch, mask->heads, rows}, lists.num_blocks);
    out.add(prefix + of + "_indices", Dtype::i32,
            {mask->batch, mask->heads, rows, columns}, lists.indices);
  };
  add("", "kv", mask->kv, mask->rows, mask->columns);
  add("full_", "kv", mask->full_kv, mask->rows, mask->columns);
  add("", "q", mask->q, mask->columns, mask->rows);
  add("full_", "q", mask->full_q, mask->columns, mask->rows);
  return {};
}

Result<void> add_splash(const Source& s, Arrays& out) {
  SplashOptions o;
  o.dkv = s.options.dkv;
  o.shrink = !s.options.no_shrink;
  o.computable = s.options.computable;
  auto batch_row = parse_int(s.options.batch_row.value_or("0"), "--batch-row",
                             0, s.plan.batch - 1);
  if (!batch_row) return batch_row.error();
  auto heads =
      parse_int(s.options.heads.value_or("0"), "--heads", 0, kMaxTiles);
  if (!heads) return heads.error();
  auto shards =
      parse_int(s.options.q_shards.value_or("1"), "--q-shards", 1, kMaxTokens);
  if (!shards) return shards.error();
  o.heads = *heads;
  o.q_shards = *shards;
  auto info = make_splash(s.batch, *batch_row, o);
  if (!info) return info.error();
  auto add = [&](const std::string& name, const SplashArray& a) {
    constexpr Dtype kTypes[] = {Dtype::boolean, Dtype::i8, Dtype::i16,
                                Dtype::i32};
    out.add_bytes(name, kTypes[static_cast<size_t>(a.type)], a.shape,
                  std::string(bytes_of(std::span<const uint8_t>(a.bytes))));
  };
  add("data_next", info->data_next);
  add("block_mask", info->block_mask);
  if (info->mask_next) add("mask_next", *info->mask_next);
  if (info->partial_mask_blocks) {
    add("partial_mask_blocks", *info->partial_mask_blocks);
  }
  if (info->q_sequence) add("q_sequence", *info->q_sequence);
  return {};
}

// The arrays of the TPU kernel, and nothing of its heads: any will do.
Result<void> add_mosaic(const Source& s, Arrays& out) {
  MosaicOptions options;
  auto tiles = parse_int(
      s.options.tiles_per_pass.value_or(std::to_string(options.tiles_per_pass)),
      "--tiles-per-pass", 1, kMosaicMaxTilesPerPass);
  if (!tiles) return tiles.error();
  options.tiles_per_pass = *tiles;
  AttentionShape shape;
  shape.head_dim = shape.v_head_dim = 128;
  auto kernel = make_mosaic_kernel(s.batch.request(), s.batch.facts(), shape,
                                   tessera::Dtype::bf16, "v6e", options);
  if (!kernel) return kernel.error();
  auto arrays = make_mosaic_arrays(s.batch, *kernel);
  if (!arrays) return arrays.error();
  constexpr int64_t kLanes = 128;
  out.add("steps", Dtype::i32, {count(arrays->steps)}, arrays->steps);
  out.add("range", Dtype::i32, {count(arrays->range)}, arrays->range);
  out.add("bounds", Dtype::i32, {count(arrays->bounds)}, arrays->bounds);
  out.add("q_ids", Dtype::i32, {kernel->batch, kernel->q_len / kLanes, kLanes},
          arrays->q_ids);
  out.add("kv_ids", Dtype::i32,
          {kernel->batch, kernel->kv_len / kLanes, kLanes}, arrays->kv_ids);
  return {};
}

struct Layout {
  std::string_view name;
  Result<void> (*add)(const Source&, Arrays&);
};
constexpr Layout kLayouts[] = {
    {"lists", add_lists},         {"steps", add_steps},
    {"rectangle", add_rectangle}, {"bitmaps", add_bitmaps},
    {"flex", add_flex},           {"splash", add_splash},
    {"mosaic", add_mosaic},
};

Result<int> run(const Options& o) {
  const Layout* layout = nullptr;
  std::vector<std::string_view> names;
  for (const Layout& l : kLayouts) {
    names.push_back(l.name);
    if (o.layout == l.name) layout = &l;
  }
  if (!layout) {
    return invalid("cli", "--layout must be one of {}, found {}",
                   fmt::join(names, ", "),
                   o.layout ? in_quotes(*o.layout) : "none");
  }
  if (!o.out) return invalid("cli", "-o must be given, found none");
  if (auto e = check_files(request_files(o.request), {*o.out}); !e) {
    return e.error();
  }
  RequestFlags request = o.request;
  if (layout->name == "mosaic" && !request.tile && !request.spec &&
      !request.plan) {
    request.tile = fmt::format("{}x{}", kMosaicTile.q, kMosaicTile.kv);
  }
  auto planned = load_planned(request);
  if (!planned) return planned.error();
  Arrays arrays;
  const Batch& batch = planned->batch;
  if (auto r = layout->add({batch, batch.plan(), o}, arrays); !r) {
    return r.error();
  }
  auto bytes = write_safetensors(arrays.file());
  if (!bytes) return bytes.error();
  if (auto r = write_file(*o.out, *bytes); !r) return r.error();
  nlohmann::json shapes = nlohmann::json::object();
  for (const auto& [name, tensor] : arrays.file().tensors) {
    shapes[name] = {{"dtype", to_string(tensor.dtype)},
                    {"shape", tensor.shape}};
    if (o.json) continue;
    fmt::print("{:<22} {:<5} [{}]\n", name, to_string(tensor.dtype),
               fmt::join(tensor.shape, ", "));
  }
  if (o.json) {
    fmt::print("{}\n", json_line(nlohmann::json({{"file", *o.out},
                                                 {"layout", layout->name},
                                                 {"bytes", bytes->size()},
                                                 {"arrays", shapes}})));
  } else {
    fmt::print("wrote {} ({} bytes)\n", *o.out, bytes->size());
  }
  return kOk;
}

}  // namespace

Command export_command() {
  auto o = std::make_shared<Options>();
  Command command{"export", "Write a layout's arrays to a .safetensors file"};
  add_flags(
      command,
      {
          {"--layout", &o->layout, "NAME",
           "lists, steps (packed), rectangle, bitmaps (of the partial tiles), "
           "flex (PyTorch BlockMask), splash (JAX MaskInfo) or mosaic (the TPU "
           "kernel's, at its tile of 512x256 where --tile is open)"},
          {"-o,--out", &o->out, "FILE", "Where to write"},
      });
  add_request_flags(command, o->request);
  add_flags(
      command,
      {
          {"--heads", &o->heads, "N",
           "flex, splash: query heads, a multiple of the plan's [its]"},
          {"--batch-row", &o->batch_row, "B", "splash: which row [0]"},
          {"--q-shards", &o->q_shards, "N", "splash: query shards [1]"},
          {"--tiles-per-pass", &o->tiles_per_pass, "N",
           "mosaic: of the kernel [4]"},
          {"--dkv", &o->dkv, "", "splash: process_mask_dkv's arrays"},
          {"--no-shrink", &o->no_shrink, "", "splash: keep the whole grid"},
          {"--computable", &o->computable, "",
           "splash: the kernel computes the mask, no partial blocks"},
          {"--no-mask-blocks", &o->no_mask_blocks, "",
           "rectangle: leave out mask_next and partial_mask_blocks"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer =
      "Examples:\n"
      "  tessera export --plan batch.plan --layout flex --heads 8 \\\n"
      "      -o block_mask.safetensors\n"
      "  tessera export --mask 'causal & documents' --q-len 4096 --docs "
      "lognormal \\\n"
      "      --layout splash --dkv -o mask_info.safetensors\n"
      "\n"
      "docs/layouts.md describes every layout; packed steps and bitmap words "
      "are\nstored as signed integers of the same bits.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
