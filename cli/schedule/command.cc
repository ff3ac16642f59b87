// cli/schedule/command.cc: `tessera schedule`.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/json_line.h"
#include "cli/schedule/kernels.h"
#include "cli/schedule/options.h"
#include "cli/schedule/report.h"
#include "picture/schedule.h"

namespace tessera::cli {
namespace {

Result<void> write_picture(const schedule::ScheduleReport& report,
                           const std::string& path) {
  std::vector<picture::Kernel> drawn;
  for (const schedule::KernelReport& k : report.kernels) {
    drawn.push_back({k.profile, k.prediction});
  }
  auto svg = picture::draw_schedule(drawn);
  if (!svg) return svg.error();
  return write_file(path, *svg);
}

Result<int> run(const ScheduleFlags& o) {
  if (auto e = check_flags(o); !e) return e.error();
  auto options = read_schedule_options(o);
  if (!options) return options.error();
  auto request = asked_request(o.kernel.run.request);
  if (!request) return request.error();
  const request::Resolved* const asked = *request ? &**request : nullptr;
  if (asked) {
    options->request = &asked->request;
    options->facts = asked->facts.view();
  }
  if (o.picture) {
    if (auto e = check_output(*o.picture); !e) return e.error();
  }
  std::optional<AskedKernel> own;
  auto dump = read_kernels(o, asked, *options, own);
  if (!dump) return dump.error();
  auto report = schedule::make_schedule(std::move(*dump), *options);
  if (!report) return report.error();
  if (o.picture) {
    if (auto e = write_picture(*report, *o.picture); !e) return e.error();
  }
  const AskedKernel* const told = own ? &*own : nullptr;
  if (o.json) {
    fmt::print("{}\n", json_line(schedule_json(*report, told)));
  } else {
    fmt::print("{}", schedule_text(*report, told));
    if (o.picture) fmt::print("{:<11} {}\n", "picture", *o.picture);
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera schedule program.mlir --target v6e:1x1\n"
    "  tessera schedule splash.mlir --mask causal --q-len 32768 \\\n"
    "      --picture splash.svg\n"
    "  tessera schedule --mask 'causal & documents' --q-len 32768 \\\n"
    "      --docs lengths:32768 --heads 8\n"
    "  tessera schedule --dump FOLDER --trips tiles=4096 --json\n"
    "\n"
    "Without a program or a dump, a request compiles and counts our own TPU "
    "kernel\nfor it. Beside one, a request (a plan or its flags) gives an "
    "attention kernel's trips and "
    "the\n"
    "tiles that its cycles are divided by. --trips says how often a region "
    "runs in\n"
    "the whole kernel, a loop's iterations; REGION is a name or a path as "
    "printed\n"
    "(loop0/if1), with KERNEL: before it where kernels share it.";

}  // namespace

Command schedule_command() {
  auto o = std::make_shared<ScheduleFlags>();
  Command command{"schedule",
                  "What a TPU program costs, from the vendor's own schedule"};
  add_schedule_flags(command, *o);
  command.footer = kFooter;
  command.json_fields = schedule_json_fields();
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
