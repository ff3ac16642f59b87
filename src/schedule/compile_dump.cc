// schedule/compile_dump.cc: makes libtpu dump what it compiles.
#include "schedule/compile_dump.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/fail.h"
#include "base/files.h"
#include "base/out_folder.h"
#include "base/text.h"
#include "pjrt/compile_for.h"

namespace tessera::schedule {
namespace {

namespace fs = std::filesystem;

// The folder for the dumps, hundreds of files. The destructor removes it unless
// it is kept.
class DumpFolder {
 public:
  DumpFolder() = default;
  DumpFolder(const DumpFolder&) = delete;
  DumpFolder& operator=(const DumpFolder&) = delete;
  ~DumpFolder() {
    std::error_code ignored;
    if (!temporary_.empty()) fs::remove_all(temporary_, ignored);
  }

  Result<std::string> make(const std::string& keep) {
    if (!keep.empty()) {
      auto kept =
          make_out_folder({"schedule", "a folder that keeps dumps"}, keep);
      if (!kept) return kept.error();
      return fs::absolute(keep).string();
    }
    std::error_code error;
    std::string path =
        (fs::temp_directory_path(error) / "tessera-schedule-XXXXXX").string();
    if (error || !mkdtemp(path.data())) {
      return io_error("schedule",
                      "a temporary folder must be made for dumps, found none "
                      "at {}",
                      in_quotes(path));
    }
    temporary_ = path;
    return path;
  }

 private:
  std::string temporary_;
};

}  // namespace

Result<CompiledDump> compile_and_dump(const std::string& text,
                                      const DumpOptions& options) {
  if (Result<void> r = pjrt::check_available(); !r) return r.error();
  DumpFolder made;
  auto folder = made.make(options.keep);
  if (!folder) return folder.error();
  pjrt::PluginOptions plugin_options;
  if (!options.plugin.empty()) plugin_options.plugin = options.plugin;
  plugin_options.dump_folder = *folder;
  auto compiled = pjrt::compile_for(plugin_options, options.target, text);
  if (!compiled) return compiled.error();
  auto dump = read_dump(*folder, options.labels);
  if (!dump) return dump.error();
  return CompiledDump{std::move(*dump), compiled->memory,
                      compiled->topology.platform_version()};
}

Result<Dump> compile_text_for_dump(const std::string& text,
                                   const DumpOptions& options) {
  auto made = compile_and_dump(text, options);
  if (!made) return made.error();
  return std::move(made->dump);
}

Result<Dump> compile_for_dump(const DumpOptions& options) {
  auto text = read_file(options.program, pjrt::kMaxProgramBytes);
  if (!text) return text.error();
  if (text->empty()) {
    return invalid("schedule", "a program must hold a module, found {} empty",
                   in_quotes(options.program));
  }
  return compile_text_for_dump(*text, options);
}

}  // namespace tessera::schedule
