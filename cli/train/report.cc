// cli/train/report.cc: a training run as text.
#include "cli/train/report.h"

#include <fmt/format.h>

#include <utility>

#include "receipt/lines.h"

namespace tessera::cli {

namespace {

constexpr int kWidth = 10;  // width of the names of lines

}  // namespace

std::string model_text(const receipt::Receipt& r) {
  receipt::Lines line(kWidth);
  add_model(r.training, line);
  return std::move(line.out);
}

std::string head_text(const receipt::Receipt& r, const data::RowFiles& data) {
  receipt::Lines line(kWidth);
  add_model(r.training, line);
  line("data", fmt::format("{} rows of {} tokens, {} a step", data.rows(),
                           data.tokens(), r.training.rows));
  add_program(r, line);
  return std::move(line.out);
}

std::string step_text(const StepReport& step, int64_t steps, double seconds) {
  return fmt::format(
      "step {:>6} of {}   loss {:<8.4f} norm {:<8.3f} {:>8.0f} tokens/s\n",
      step.step, steps, step.loss, step.gradient_norm,
      static_cast<double>(step.tokens) / seconds);
}

std::string end_text(const receipt::Receipt& r) {
  receipt::Lines line(kWidth);
  add_steps(r.training, line);
  return std::move(line.out);
}

}  // namespace tessera::cli
