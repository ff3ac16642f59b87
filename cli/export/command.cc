// cli/export/command.cc: `tessera export`: a plan's other layouts as arrays.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/export/layouts.h"
#include "cli/plan/report.h"
#include "cli/request/file_checks.h"
#include "tessera/mosaic.h"

namespace tessera::cli {
namespace {

// The one that was asked for.
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

Result<int> run(const ExportFlags& o) {
  auto found = layout_of(o);
  if (!found) return found.error();
  const ExportLayout& layout = **found;
  if (!o.out) return invalid("cli", "-o must be given, found none");
  if (auto e = check_files(request_files(o.request), {*o.out}); !e) {
    return e.error();
  }
  RequestFlags request = o.request;
  if (layout.name == "mosaic" && !request.tile && !request.spec &&
      !request.plan) {
    const Tile tile = o.backward ? kMosaicBackwardTile : kMosaicTile;
    request.tile = fmt::format("{}x{}", tile.q, tile.kv);
  }
  auto planned = load_planned(request);
  if (!planned) return planned.error();
  NamedArrays arrays;
  if (auto r = layout.add(planned->batch, o, arrays); !r) return r.error();
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
                                                 {"layout", layout.name},
                                                 {"bytes", bytes->size()},
                                                 {"arrays", shapes}})));
  } else {
    fmt::print("wrote {} ({} bytes)\n", *o.out, bytes->size());
  }
  return kOk;
}

}  // namespace

Command export_command() {
  auto o = std::make_shared<ExportFlags>();
  Command command{"export", "Write a layout's arrays to a .safetensors file"};
  add_flags(
      command,
      {
          {"--layout", &o->layout, "NAME",
           "lists, steps (packed), rectangle, bitmaps (of the partial tiles), "
           "flex (PyTorch BlockMask), splash (JAX MaskInfo) or mosaic (the TPU "
           "kernel's, at its tile where --tile is open)"},
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
           "mosaic: of the kernel [4; backward 1]"},
          {"--backward", &o->backward, "", "mosaic: of the gradients' kernel"},
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
