// cli/compile/command.cc: `tessera compile`: compiles a program for a device
// that this machine may lack.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/compile/flags.h"
#include "cli/compile/kernel_report.h"
#include "cli/compile/receipt.h"
#include "cli/compile/report.h"
#include "cli/json_line.h"
#include "cli/receipt/output.h"

namespace tessera::cli {
namespace {

Result<std::string> read_program(const std::string& path) {
  auto program = read_file(path, pjrt::kMaxProgramBytes);
  if (program && program->empty()) {
    return invalid("compile", "a program must hold a module, found none in {}",
                   in_quotes(path));
  }
  return program;
}

Result<void> write_compiled(const CompileFlags& o, const CompileTarget& target,
                            const AskedKernel& kernel,
                            const CompileReport& report) {
  auto receipt = compile_receipt(o.kernel, kernel, compiled_by(target, report));
  if (!receipt) return receipt.error();
  return write_receipt(*o.receipt, *receipt);
}

// Makes the kernel, and refuses one that no compiler could fit into memory.
// Only the compiler checks the telemetry kernel, which is not among a budget's
// passes.
Result<AskedKernel> make_kernel(const CompileFlags& o,
                                const std::string& target) {
  auto asked = read_asked_call(o.kernel, target);
  if (!asked) return asked.error();
  auto kernel = make_asked_kernel(*asked, target);
  if (!kernel || o.no_compile || o.kernel.sink_telemetry) return kernel;
  if (auto e = check_room(asked_fit(std::move(*asked), target)); !e) {
    return e.error();
  }
  return kernel;
}

int print_emitted(const CompileFlags& o, const AskedKernel& kernel) {
  const nlohmann::json json = {{"kernel", kernel_json(kernel)},
                               {"emit", *o.emit}};
  fmt::print(
      "{}", o.json ? json_line(json) + "\n"
                   : kernel_text(kernel) + fmt::format("{:<11} {}\n", "emitted",
                                                       on_a_line(*o.emit)));
  return kOk;
}

void print_report(const CompileFlags& o, const AskedKernel* kernel,
                  const CompileReport& report) {
  fmt::print("{}", compile_text(report));
  if (kernel) fmt::print("{}", kernel_text(*kernel));
  if (o.emit) fmt::print("{:<11} {}\n", "emitted", on_a_line(*o.emit));
  if (o.out) {
    fmt::print("{:<11} {}, {} bytes\n", "saved", on_a_line(*o.out),
               report.bytes.size());
    if (kernel) fmt::print("{:<11} {}\n", "", on_a_line(contract_file(o)));
  }
  if (o.receipt) fmt::print("{:<11} {}\n", "receipt", on_a_line(*o.receipt));
}

Result<int> run(const CompileFlags& o) {
  const bool asked = asks_for_kernel(o.kernel);
  if (auto e = check_flags(o); !e) return e.error();
  const CompileTarget target{*o.kernel.run.request.target,
                             o.plugin.value_or("libtpu")};
  std::optional<AskedKernel> kernel;
  if (asked) {
    auto made = make_kernel(o, target.target);
    if (!made) return made.error();
    kernel = std::move(*made);
  }
  auto program =
      kernel ? Result(kernel->kernel.program_text) : read_program(*o.program);
  if (!program) return program.error();
  if (o.emit) {
    if (auto e = write_file(*o.emit, *program); !e) return e.error();
  }
  if (o.no_compile) return print_emitted(o, *kernel);
  auto report = compile_program(target, *program);
  if (!report) return report.error();
  nlohmann::json json = compile_json(*report);
  if (kernel) json["kernel"] = kernel_json(*kernel);
  if (o.emit) json["emit"] = *o.emit;
  if (o.out) json["out"] = *o.out;
  if (o.out && kernel) {
    auto e = write_file(contract_file(o), json_line(json) + "\n");
    if (!e) return e.error();
  }
  if (o.out) {
    if (auto e = write_file(*o.out, report->bytes); !e) return e.error();
  }
  if (o.receipt) {
    if (auto e = write_compiled(o, target, *kernel, *report); !e) {
      return e.error();
    }
  }
  if (o.json) {
    fmt::print("{}\n", json_line(json));
  } else {
    print_report(o, kernel ? &*kernel : nullptr, *report);
  }
  return kOk;
}

}  // namespace

Command compile_command() {
  auto o = std::make_shared<CompileFlags>();
  Command command{
      "compile", "Compile a program or a kernel ahead of time, with no device"};
  add_compile_flags(command, *o);
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
