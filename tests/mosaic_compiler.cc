// tests/mosaic_compiler.cc: compiles a kernel of a class, checks its memory.
#include "tests/mosaic_compiler.h"

#include "tests/lowering.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera::testing {

Request MosaicCompiler::request_of(const char* mask, int64_t tokens,
                                   Tile tile) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = r.kv_len = tokens;
  r.tile = tile;
  return r;
}

AttentionShape MosaicCompiler::shape_of(int64_t heads, int64_t kv_heads) {
  AttentionShape s;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = s.v_head_dim = 128;
  return s;
}

AttentionCall MosaicCompiler::call_of(const KernelClass& c) {
  AttentionCall out;
  out.shape = shape_of(c.heads, c.kv_heads);
  out.shape.head_dim = c.dim;
  out.shape.v_head_dim = c.v_dim;
  out.shape.softcap = c.softcap;
  out.dtype = c.dtype;
  out.sink_logits = c.sinks;
  out.backward = c.backward;
  out.dlse = c.dlse;
  out.sink_telemetry = c.telemetry;
  return out;
}

void MosaicCompiler::SetUp() {
  auto plugin = real_plugin("libtpu");
  if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  take_target("v6e:1x1");
}

void MosaicCompiler::take_target(std::string_view target) {
  auto plugin = real_plugin("libtpu");
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  auto topology = pjrt::make_topology(**plugin, std::string(target));
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  topology_.emplace(std::move(*topology));
}

void MosaicCompiler::check(const KernelClass& c) {
  // Every test has at least three classes.
  if (takes_case(checks_++, 3)) compile_class(c);
}

void MosaicCompiler::compile_class(const KernelClass& c) {
  Facts present;
  present.doc_ids = present.prefix_lengths = Ints{};
  present.tree_enter = present.tree_leave = Ints{};
  present.same_ids[0] = present.same_ids[1] = Ints{};
  Request request = request_of(c.mask, c.tokens, c.tile);
  if (request.masks.front().names.picks) {  // picks for each K/V head
    present.picks = Picks{};
    present.picks->heads = c.kv_heads;
  }
  MosaicOptions options = c.options;
  options.lowering_reason = lowering_reason(c.tile);
  auto kernel = make_mosaic_kernel(request, present, call_of(c),
                                   std::string(c.target), options);
  ASSERT_TRUE(kernel.ok()) << c.target << ", " << c.mask << ", dim " << c.dim
                           << ": " << kernel.error().message;
  auto made = compile(kernel->program_text);
  ASSERT_TRUE(made.ok()) << c.target << ", " << c.mask << ", dims " << c.dim
                         << " and " << c.v_dim << ": " << made.error().message;
  auto memory = made->memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_GT(memory->code, 0);
  const int64_t width = byte_width(c.dtype);
  const int64_t queries = kernel->q_len * c.heads * width;
  const int64_t keys = kernel->kv_len * c.kv_heads * width;
  if (c.telemetry) {
    EXPECT_GE(memory->output, 2 * 4 * kernel->q_len * c.heads);
    EXPECT_GE(memory->argument, (queries + keys) * c.dim);
    return;
  }
  const int64_t both = c.dim + c.v_dim;
  EXPECT_GE(memory->output,
            c.backward ? queries * c.dim + keys * both : queries * c.v_dim);
  EXPECT_GE(memory->argument,
            queries * (c.backward ? both + c.v_dim : c.dim) + keys * both);
}

}  // namespace tessera::testing
