// lanes/mosaic/values_test.cc: the vendor's compiler takes kernels of float32,
// kernels for numbers that may not be finite, and comparisons of floats.
#include <gtest/gtest.h>

#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/program.h"
#include "lanes/mosaic/vector_memory.h"
#include "tests/mosaic_compiler.h"

namespace tessera::mosaic {
namespace {

using Class = testing::KernelClass;
using MosaicValues = testing::MosaicCompiler;

// Tiles as they lie and transposed, in both types; with bitmaps, a kernel with
// all terms, which comes in chunks here.
TEST_F(MosaicValues, AnyValues) {
  for (const bool backward : {false, true}) {
    for (const auto& [dim, v_dim] :
         {std::pair(128, 128), std::pair(64, 128), std::pair(192, 64)}) {
      Class c{"causal & documents",
              4096,
              {512, 512},
              {1, 2},
              8,
              4,
              backward,
              backward,
              0,
              dim,
              v_dim};
      c.options.numbers = Numbers::any;
      if (dim == 192) c.dtype = Dtype::f32;
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
    Class c{"documents | sink(4)",
            1000,
            {256, 128},
            {3, 2},
            2,
            1,
            backward,
            backward,
            30};
    c.sinks = true;
    c.options.numbers = Numbers::any;
    if (backward) c.options.query_chunk = 512;
    ASSERT_NO_FATAL_FAILURE(check(c));
  }
}

// With bounds, and with bitmaps and all other terms that a kernel may have.
TEST_F(MosaicValues, Float32) {
  for (const bool backward : {false, true}) {
    Class c{"causal & documents", 4096, {512, 256}, {1, 2}, 8, 4, backward};
    c.dtype = Dtype::f32;
    ASSERT_NO_FATAL_FAILURE(check(c));
    c.mask = "documents | sink(4)";
    c.tokens = 1000;
    c.tile = {256, 128};
    c.options = {2, 2};
    c.softcap = 30;
    c.sinks = true;
    c.dlse = backward;
    for (const auto& [dim, v_dim] :
         {std::pair(64, 64), std::pair(192, 128), std::pair(256, 256)}) {
      c.dim = dim;
      c.v_dim = v_dim;
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
  }
}

// Every comparison of floats that the writer can write, of vectors and scalars.
TEST_F(MosaicValues, ComparesOfFloats) {
  const std::vector<int64_t> shape = {8, 128};
  const std::vector<Argument> arrays = {in_smem("scalars", 8, Element::f32),
                                        in_hbm("x", Element::f32, shape),
                                        in_hbm("out", Element::f32, shape),
                                        in_hbm("again", Element::f32, shape),
                                        in_vmem("tile", Element::f32, shape),
                                        semaphores("copies", {})};
  std::vector<Argument> arguments = arrays;
  arguments.insert(arguments.begin(), {"batch_row", scalar(Element::i32)});
  Writer w(arguments);
  const Value& done = w.argument("copies");
  const Value& tile = w.argument("tile");
  w.start_copy(w.argument("x"), tile, done);
  w.wait_copy(done, tile);
  for (const Compare how :
       {Compare::equal, Compare::not_equal, Compare::less,
        Compare::less_or_equal, Compare::greater, Compare::greater_or_equal}) {
    const Value x = w.load(tile);
    const Value zero = w.splat(w.real(0), shape);
    const Value holds = w.compare(how, x, zero);
    const Value chosen = w.select(holds, x, w.splat(w.real(1), shape));
    const Value scalar_x = w.load_scalar(w.argument("scalars"), w.constant(3));
    w.if_then(w.compare(how, scalar_x, w.real(0)),
              [&] { w.store(chosen, tile); });
  }
  for (const char* out : {"out", "again"}) {  // a program has several results
    w.start_copy(tile, w.argument(out), done);
    w.wait_copy(done, tile);
  }
  auto made = compile(program("compares", arrays, 2, w.kernel("compares", 1),
                              mosaic::vector_rooms(128 << 20).program));
  EXPECT_TRUE(made.ok()) << made.error().message;
}

}  // namespace
}  // namespace tessera::mosaic
