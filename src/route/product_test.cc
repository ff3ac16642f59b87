// Scoring's product has a plain loop's bits on every instruction set.
#include "route/product.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace tessera::routing {
namespace {

TEST(RouteProduct, EveryInstructionSetAddsInTheOrderOfTheDimensions) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  for (const int64_t rows : {1, 2, 5, 11, 12, 13, 30}) {
    for (const int64_t dim : {1, 3, 64}) {
      const int64_t panels = 1 + rows % 3;
      const int64_t lda = dim + 2;
      const int64_t ldo = panels * kPanelKeys + 4;
      std::vector<float> a, b;
      for (int64_t i = 0; i < rows * lda; ++i) a.push_back(normal(random));
      for (int64_t i = 0; i < panels * dim * kPanelKeys; ++i) {
        b.push_back(normal(random));
      }
      for (const Isa isa : machine_isas()) {
        std::vector<float> out(static_cast<size_t>(rows * ldo), 7);
        PanelProduct p{a.data(), rows,       lda, dim,  b.data(),
                       panels,   out.data(), ldo, false};
        multiply_panels(isa, p);
        p.add = true;
        multiply_panels(isa, p);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t i = 0; i < ldo; ++i) {
            float want = 7;
            if (i < panels * kPanelKeys) {
              float dot = 0;
              for (int64_t d = 0; d < dim; ++d) {
                const float x = a[static_cast<size_t>(r * lda + d)] *
                                b[static_cast<size_t>(
                                    (i / kPanelKeys * dim + d) * kPanelKeys +
                                    i % kPanelKeys)];
                dot += x;
              }
              want = dot + dot;
            }
            ASSERT_EQ(out[static_cast<size_t>(r * ldo + i)], want)
                << to_string(isa) << ", row " << r << ", key " << i;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::routing
