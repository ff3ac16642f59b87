// schedule/dump.cc: groups dump files by the kernels they name.
#include "schedule/dump.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "schedule/stalls.h"

namespace tessera::schedule {
namespace {

constexpr int64_t kMaxDumpBytes = int64_t{1} << 30;
constexpr std::string_view kBundleEnding = "-final_bundles.txt";
constexpr std::string_view kSlotEnding =
    "-final_hlo-static-per-bundle-utilization.txt";
constexpr std::string_view kPackedEnding = "-packed-bundles-post-ra.txt";
constexpr std::string_view kProgramEnding = "-TLP-hlo.txt";

bool all_digits(std::string_view s) {
  return !s.empty() &&
         s.find_first_not_of("0123456789") == std::string_view::npos;
}

// "1795278917-splash.1-72-final_bundles.txt" without its stage: the time and
// the name. All times have the same width, so names sort by time.
std::optional<std::pair<std::string, std::string>> kernel_of(
    std::string_view file, std::string_view ending) {
  if (!file.ends_with(ending)) return {};
  file.remove_suffix(ending.size());
  const size_t stage = file.rfind('-');
  const size_t time = file.find('-');
  if (stage == std::string_view::npos || time >= stage) return {};
  if (!all_digits(file.substr(stage + 1)) ||
      !all_digits(file.substr(0, time))) {
    return {};
  }
  const std::string_view name = file.substr(time + 1, stage - time - 1);
  if (name.empty() || name == "TLP" || name.starts_with("<")) return {};
  return std::pair(std::string(file.substr(0, time)), std::string(name));
}

}  // namespace

bool has_label(std::string_view kernel, std::string_view label) {
  if (!kernel.starts_with(label)) return false;
  kernel.remove_prefix(label.size());
  return kernel.empty() ||
         (kernel.front() == '.' && all_digits(kernel.substr(1)));
}

namespace {

struct Files {
  std::string bundles, slots, packed;
};
struct Folder {
  std::map<std::pair<std::string, std::string>, Files> kernels;
  std::vector<std::string> programs;
};

Result<Folder> files_of(const std::string& folder) {
  namespace fs = std::filesystem;
  Folder out;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (!entry->is_regular_file(error)) continue;
    const std::string file = entry->path().filename().string();
    if (auto key = kernel_of(file, kBundleEnding)) {
      out.kernels[*key].bundles = entry->path().string();
    } else if (auto other = kernel_of(file, kSlotEnding)) {
      out.kernels[*other].slots = entry->path().string();
    } else if (auto third = kernel_of(file, kPackedEnding)) {
      out.kernels[*third].packed = entry->path().string();
    } else if (file.ends_with(kProgramEnding)) {
      out.programs.push_back(entry->path().string());
    }
  }
  if (error) {
    return io_error("schedule", "{} must be a folder to read, found: {}",
                    in_quotes(folder), error.message());
  }
  return out;
}

Result<KernelText> read_kernel(const std::string& name, const Files& files) {
  if (files.bundles.empty() || files.slots.empty() || files.packed.empty()) {
    return invalid("schedule",
                   "a kernel's dump must be three files (*{}, *{}, *{}), "
                   "found fewer for {}",
                   kBundleEnding, kSlotEnding, kPackedEnding, in_quotes(name));
  }
  auto bundles = read_file(files.bundles, kMaxDumpBytes);
  if (!bundles) return bundles.error();
  auto slots = read_file(files.slots, kMaxDumpBytes);
  if (!slots) return slots.error();
  auto kernel = parse_kernel(name, *bundles, *slots);
  if (!kernel) return in_file(kernel.error(), files.bundles);
  auto packed = read_file(files.packed, kMaxDumpBytes);
  if (!packed) return packed.error();
  if (auto e = add_stalls(*packed, *kernel); !e) {
    return in_file(e.error(), files.packed);
  }
  return kernel;
}

}  // namespace

Result<Dump> read_dump(const std::string& folder,
                       const std::vector<std::string>& labels) {
  auto files = files_of(folder);
  if (!files) return files.error();
  Dump out;
  for (const auto& [key, of_kernel] : files->kernels) {
    const std::string& name = key.second;
    if (!labels.empty() &&
        std::ranges::none_of(labels, [&](const std::string& label) {
          return has_label(name, label);
        })) {
      continue;
    }
    auto kernel = read_kernel(name, of_kernel);
    if (!kernel) return kernel.error();
    out.kernels.push_back(std::move(*kernel));
  }
  if (out.kernels.empty()) {
    return invalid("schedule",
                   "a dump must hold a kernel's *{} (libtpu's "
                   "--xla_jf_dump_llo_text=true), found none in {}",
                   kBundleEnding, in_quotes(folder));
  }
  if (files->programs.size() == 1) {
    const std::string& program = files->programs[0];
    auto hlo = read_file(program, kMaxDumpBytes);
    if (!hlo) return hlo.error();
    auto calls = parse_calls(*hlo);
    if (!calls) return in_file(calls.error(), program);
    out.calls = std::move(*calls);
    out.bodies = parse_bodies(*hlo);
  }
  return out;
}

}  // namespace tessera::schedule
