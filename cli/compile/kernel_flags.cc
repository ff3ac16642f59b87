// cli/compile/kernel_flags.cc: from flags to a kernel, without reading any
// fact.
#include "cli/compile/kernel_flags.h"

#include "base/fail.h"
#include "cli/numbers.h"

namespace tessera::cli {
namespace {

constexpr const char* kKernelGroup = "The kernel";

// What the kernel cannot do and no size says.
Result<void> refuse_unsupported(const RunFlags& f) {
  if (f.sink_logits) {
    return invalid("mosaic",
                   "the kernel has no sink logits, found "
                   "--sink-logits");
  }
  if (f.layout && *f.layout != "bhsd") {
    return invalid("mosaic", "--layout must be bhsd, found {}", *f.layout);
  }
  return {};
}

}  // namespace

void add_kernel_flags(Command& command, KernelFlags& f) {
  add_shape_flags(command, f.run, "bf16 [bf16]",
                  "The devices to compile for, as v6e:1x1");
  add_flags(command, kKernelGroup,
            {
                {"--tiles-per-pass", &f.tiles_per_pass, "N",
                 "Tiles that the kernel takes at a time, 1 to 8: more suit "
                 "long rows [4; backward 1]"},
                {"--fetch-ahead", &f.fetch_ahead, "N",
                 "Passes, backward key tiles, between a copy's start and its "
                 "use, 1 to 14 [4; backward 1]"},
                {"--dlse", &f.dlse, "",
                 "It takes the gradient of the log-sum-exp too"},
            });
  for (Flag& flag : command.flags) {
    if (flag.names != std::string_view("--backward")) continue;
    flag.about = "The kernel of the gradients";
    flag.group = kKernelGroup;
  }
}

bool asks_for_kernel(const KernelFlags& f) {
  const RequestFlags& r = f.run.request;
  return !r.masks.empty() || r.spec || r.plan;
}

Result<AskedKernel> make_asked_kernel(const KernelFlags& f,
                                      const std::string& target) {
  if (auto e = refuse_unsupported(f.run); !e) return e.error();
  const bool backward = f.run.backward;
  auto asked =
      load_asked(f.run.request, backward ? kMosaicBackwardTile : kMosaicTile);
  if (!asked) return asked.error();
  RunOptions sizes;
  RunFlags run = f.run;
  if (!run.dtype) run.dtype = "bf16";
  if (auto e = read_shape(run, sizes); !e) return e.error();
  MosaicOptions options = backward ? kMosaicBackward : MosaicOptions{};
  struct Number {
    const std::optional<std::string>& text;
    std::string_view what;
    int64_t most;
    int64_t& out;
  };
  for (const Number& n :
       {Number{f.tiles_per_pass, "--tiles-per-pass", kMosaicMaxTilesPerPass,
               options.tiles_per_pass},
        Number{f.fetch_ahead, "--fetch-ahead", kMosaicMaxFetchAhead,
               options.fetch_ahead}}) {
    if (!n.text) continue;
    auto value = parse_int(*n.text, n.what, 1, n.most);
    if (!value) return value.error();
    n.out = *value;
  }
  AttentionCall call{sizes.data.shape, sizes.data.dtype};
  call.backward = backward;
  call.dlse = f.dlse;
  auto kernel =
      make_mosaic_kernel(asked->request, asked->present, call, target, options);
  if (!kernel) return kernel.error();
  return AskedKernel{std::move(asked->request), sizes.data.shape,
                     std::move(*kernel)};
}

}  // namespace tessera::cli
