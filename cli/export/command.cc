// cli/export/command.cc: `tessera export`: a plan's other layouts as arrays.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/compile/asked_kernel.h"
#include "cli/compile/kernel_flags.h"
#include "cli/export/kernel_layouts.h"
#include "cli/export/layouts.h"
#include "cli/json_line.h"
#include "cli/lowering.h"
#include "cli/request/file_checks.h"
#include "cli/route/planned.h"
#include "tessera/mosaic.h"

namespace tessera::cli {
namespace {

// The layout that --layout names.
Result<const ExportLayout*> layout_of(const ExportFlags& o) {
  std::vector<std::string_view> names;
  for (const ExportLayout& l : export_layouts()) {
    if (o.layout == l.name) return &l;
    names.push_back(l.name);
  }
  return invalid("cli", "--layout must be one of {}, found {}",
                 fmt::join(names, ", "),
                 o.layout ? in_quotes(*o.layout) : "none");
}

// Sets tile and tiles per pass as `tessera compile` does for the same request,
// without reading facts.
Result<AskedSetting> suit_kernel(ExportFlags& o) {
  auto asked = load_asked(o.request);
  if (!asked) return asked.error();
  auto call = mosaic_call(o);
  if (!call) return call.error();
  auto found =
      asked_setting(*asked, *call, !o.tiles_per_pass, o.keys_per_query);
  if (!found) return found.error();
  if (auto e = read_mosaic_options(o, found->setting.options); !e) {
    return e.error();
  }
  take_what_fits(*asked, *call, mosaic_target(o),
                 {asked->open_tile, !o.tiles_per_pass, !o.fetch_ahead}, *found);
  const MosaicSetting& s = found->setting;
  if (asked->open_tile) {
    o.request.tile = fmt::format("{}x{}", s.tile.q, s.tile.kv);
  }
  if (!o.tiles_per_pass) {
    o.tiles_per_pass = fmt::to_string(s.options.tiles_per_pass);
  }
  if (!o.fetch_ahead) o.fetch_ahead = fmt::to_string(s.options.fetch_ahead);
  return found;
}

Result<int> run(const ExportFlags& o) {
  auto found = layout_of(o);
  if (!found) return found.error();
  const ExportLayout& layout = **found;
  if (!o.out) return invalid("cli", "-o must be given, found none");
  if (auto e = check_files(request_files(o.request), {*o.out}); !e) {
    return e.error();
  }
  if (o.max_blocks && layout.name != "tokamax") {
    return invalid("cli", "--max-blocks goes with --layout tokamax, found {}",
                   layout.name);
  }
  ExportFlags flags = o;
  if (auto e = check_reason_flag(o.lowering_reason); !e) return e.error();
  std::optional<AskedSetting> kernel;
  if (layout.name == "mosaic") {
    auto setting = suit_kernel(flags);
    if (!setting) return setting.error();
    kernel = std::move(*setting);
  } else {
    for (const auto& [text, name] :
         {std::pair(&o.keys_per_query, "--keys-per-query"),
          std::pair(&o.page_steps, "--page-steps"),
          std::pair(&o.fetch_ahead, "--fetch-ahead"),
          std::pair(&o.query_chunk, "--query-chunk"),
          std::pair(&o.lowering_reason, "--lowering-reason"),
          std::pair(&o.numbers, "--numbers"),
          std::pair(&o.head_dim, "--head-dim"),
          std::pair(&o.v_head_dim, "--v-head-dim")}) {
      if (!*text) continue;
      return invalid("cli", "{} goes with --layout mosaic, found {}", name,
                     layout.name);
    }
  }
  auto planned = load_planned(flags.request);
  if (!planned) return planned.error();
  NamedArrays arrays;
  if (auto r = layout.add(planned->batch, flags, arrays); !r) return r.error();
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
    nlohmann::json out = {{"file", *o.out},
                          {"layout", layout.name},
                          {"bytes", bytes->size()},
                          {"arrays", shapes}};
    if (kernel) {
      const Tile& tile = planned->batch.request().tile;
      out["tile"] = {tile.q, tile.kv};
      out["tiles_per_pass"] = kernel->setting.options.tiles_per_pass;
      out["chosen_by"] = who_chose(kernel->tile_by, kernel->passes_by);
    }
    fmt::print("{}\n", json_line(out));
  } else {
    if (kernel) {
      fmt::print("chosen by {}\n",
                 who_chose(kernel->tile_by, kernel->passes_by));
    }
    fmt::print("wrote {} ({} bytes)\n", *o.out, bytes->size());
  }
  return kOk;
}

constexpr JsonField kJsonFields[] = {
    {"file, layout, bytes"},
    {"tile, tiles_per_pass, chosen_by",
     "layout mosaic: the kernel's, and who chose what was open"},
    {"arrays.NAME.{dtype,shape}"},
};

}  // namespace

Command export_command() {
  auto o = std::make_shared<ExportFlags>();
  Command command{"export", "Write a layout's arrays to a .safetensors file"};
  add_export_flags(command, *o);
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
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
