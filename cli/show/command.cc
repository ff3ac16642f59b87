// cli/show/command.cc: `tessera show`.
#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/request/flags.h"
#include "cli/route/planned.h"
#include "cli/route/report.h"
#include "cli/terminal.h"
#include "picture/picture.h"
#include "receipt/lines.h"
#include "receipt/parts.h"
#include "receipt/routing.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

struct Options {
  request::RequestFlags request;
  std::optional<std::string> file;
  std::optional<std::string> out;
  std::optional<std::string> batch_row, head, width;
  bool ascii = false;
  bool json = false;
};

Result<int64_t> index_of(const std::optional<std::string>& text,
                         std::string_view what, int64_t count) {
  if (!text) return int64_t{0};
  return request::parse_int(*text, what, 0, count - 1);
}

Result<int> run(Options o) {
  if (o.file) {
    if (o.request.plan) {
      return invalid("cli", "a plan file is given once, found FILE and --plan");
    }
    o.request.plan = o.file;
  }
  auto planned = load_planned(o.request);
  if (!planned) return planned.error();
  const Batch& batch = planned->batch;
  const Plan& plan = batch.plan();
  auto batch_row = index_of(o.batch_row, "--batch-row", plan.batch);
  if (!batch_row) return batch_row.error();
  auto head = index_of(o.head, "--head", plan.heads);
  if (!head) return head.error();
  auto width = o.width ? request::parse_int(*o.width, "--width",
                                            picture::kMinTextColumns,
                                            picture::kMaxTextColumns)
                       : std::max(picture::kMinTextColumns, terminal_columns());
  if (!width) return width.error();
  std::vector<std::string> head_masks =
      picture::titles_of_heads(plan, planned->written);
  picture::Input input{batch, head_masks[static_cast<size_t>(*head)],
                       *batch_row, *head, *width};
  input.head_masks = std::move(head_masks);
  input.color = shows_color(isatty(STDOUT_FILENO), std::getenv("NO_COLOR"),
                            std::getenv("TERM"));
  input.unicode = !o.ascii && locale_is_utf8();

  const auto picks = receipt::routing_of(batch);
  const auto with_picks = [&](nlohmann::json out) {
    if (picks) {
      out["picks"] = picks_json(*picks);
      out["phases"] = receipt::route_phases_json();
    }
    return out.dump();
  };
  if (!o.out) {
    auto picture = picture::draw_text(input);
    if (!picture) return picture.error();
    if (o.json) {
      fmt::print("{}\n", with_picks({{"text", *picture}}));
    } else {
      fmt::print("{}", *picture);
      if (picks) {
        fmt::print("picks  {}\nphases {}\n", receipt::picks_text(*picks),
                   phases_text());
      }
    }
    return kOk;
  }
  const bool svg = o.out->ends_with(".svg");
  if (!svg && !o.out->ends_with(".html")) {
    return invalid("cli", "-o must end in .svg or .html, found {}",
                   in_quotes(*o.out));
  }
  auto picture = svg ? picture::draw_svg(input) : picture::draw_html(input);
  if (!picture) return picture.error();
  if (auto e = write_file(*o.out, *picture); !e) return e.error();
  if (o.json) {
    fmt::print("{}\n",
               with_picks({{"file", *o.out}, {"bytes", picture->size()}}));
  } else {
    fmt::print("wrote {} ({} bytes)\n", *o.out, picture->size());
  }
  return kOk;
}

constexpr JsonField kJsonFields[] = {
    {"text", "without -o: the picture"},
    {"file, bytes", "with -o"},
    {kPicksFields, "masks with picks"},
    {kPhasesFields, "masks with picks: where a gradient flows"},
};

}  // namespace

Command show_command() {
  auto o = std::make_shared<Options>();
  Command command{"show", "Picture the tiles: in the terminal, as SVG or HTML"};
  add_flags(command,
            {
                {"FILE", &o->file, "TEXT", "A plan saved by `tessera plan -o`"},
            });
  add_request_flags(command, o->request);
  add_flags(command,
            {
                {"-o,--out", &o->out, "FILE",
                 "out.svg, or out.html to zoom and hover over [the terminal]"},
                {"--batch-row", &o->batch_row, "B", "Which batch row [0]"},
                {"--head", &o->head, "H", "Which plan head [0]"},
                {"--width", &o->width, "N", "Columns of text [the terminal's]"},
                {"--ascii", &o->ascii, "", "Text without Unicode blocks"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer =
      "Examples:\n"
      "  tessera show batch.plan\n"
      "  tessera show --mask 'causal & window(1023, 0)' --q-len 8192 -o a.svg\n"
      "\n"
      "NO_COLOR=1 or TERM=dumb turns colours off.";
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
