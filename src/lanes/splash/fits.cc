// lanes/splash/fits.cc: compares a Splash kernel with a request and a plan.
#include "lanes/splash/fits.h"

#include <fmt/format.h>

#include <cmath>

#include "base/dtype_word.h"

namespace tessera::splash {

std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const RequestFeatures& f) {
  struct Word {
    std::string_view what;
    std::string has, asked;
  };
  const auto number = [](auto n) { return fmt::to_string(n); };
  const auto tile = [](int64_t q, int64_t kv) {
    return fmt::format("{}x{}", q, kv);
  };
  const AttentionShape& has = kernel.shape;
  const AttentionShape& asked = f.shape;
  const Word words[] = {
      {"dtype", std::string(dtype_word(kernel.dtype)),
       std::string(dtype_word(f.call.dtype))},
      {"q_len", number(kernel.q_len), number(f.q_len)},
      {"kv_len", number(kernel.kv_len), number(f.kv_len)},
      {"heads", number(has.heads), number(asked.heads)},
      {"K/V heads", number(has.kv_heads), number(asked.kv_heads)},
      {"head dim", number(has.head_dim), number(asked.head_dim)},
      {"value head dim", number(has.v_head_dim), number(asked.v_head_dim)},
      {"scale", number(has.scale_or_default()),
       number(asked.scale_or_default())},
      {"softcap", number(has.softcap), number(asked.softcap)},
      {"tile", tile(kernel.block_q, kernel.block_kv),
       tile(f.tile.q, f.tile.kv)},
  };
  for (const Word& w : words) {
    if (w.has == w.asked) continue;
    return fmt::format("its artifact has {} {}, not {}", w.what, w.has,
                       w.asked);
  }
  if (f.plan_heads > 1 && kernel.mask_heads == 1) {
    return fmt::format("its artifact has one mask for all heads, not {}",
                       f.plan_heads);
  }
  return {};
}

std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const PlanFacts& plan) {
  if (plan.widest_row <= kernel.width) return {};
  return fmt::format("its artifact has {} tiles a row, not {}", kernel.width,
                     plan.widest_row);
}

std::optional<std::string> inexact(const BridgeSplash& kernel,
                                   std::string_view platform) {
  if (kernel.dtype == Dtype::f32) {
    if (platform != "tpu") return {};
    return "its artifact is of f32, whose factors a TPU rounds to bf16: it "
           "runs where it is asked for by name";
  }
  const double scale = kernel.shape.scale_or_default();
  int exponent = 0;
  const double fraction = std::abs(std::frexp(scale, &exponent));
  if (fraction == 0.5 || fraction == 0) return {};
  return fmt::format(
      "its artifact rounds q times the scale to {}, {} being no power of two: "
      "it runs where it is asked for by name",
      dtype_word(kernel.dtype), scale);
}

}  // namespace tessera::splash
