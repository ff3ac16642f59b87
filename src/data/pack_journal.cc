// data/pack_journal.cc: writes and reads the journal of a packing run.
#include "data/pack_journal.h"

#include <sys/stat.h>

#include <cmath>
#include <utility>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "data/input_files.h"
#include "data/position_fields.h"
#include "data/row_folder.h"
#include "tessera/version.h"

namespace tessera::data {
namespace {

constexpr size_t kDigestDigits = 32;

std::string line_of(const Json& value) {
  const std::string text =
      value.dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format("{} {}\n", digest_of(text), text);
}

// Takes the next whole line off the text.
std::optional<ParsedJson> next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end <= kDigestDigits ||
      text[kDigestDigits] != ' ') {
    return std::nullopt;
  }
  const std::string_view value =
      text.substr(kDigestDigits + 1, end - kDigestDigits - 1);
  if (text.substr(0, kDigestDigits) != digest_of(value)) return std::nullopt;
  text.remove_prefix(end + 1);
  auto json = parse_json(value, "data");
  if (!json) return std::nullopt;
  return std::move(*json);
}

// Visits every number of a file's line, in the order of the line.
template <class File, class Visit>
void visit_numbers(File& f, const Visit& visit) {
  visit(f.bytes);
  visit(f.rows);
  visit_position(f.after, [&](const char*, auto& n) { visit(n); });
}

struct ReadNumbers {
  const Json& numbers;
  size_t& at;
  bool& good;

  const Json* next() const {
    good = good && at < numbers.size();
    return good ? &numbers[at++] : nullptr;
  }
  void operator()(int64_t& n) const {
    const Json* const value = next();
    auto read = value == nullptr
                    ? Result<int64_t>(Error{})
                    : read_int(*value, "data", "a count", 0, kMaxCount);
    good = good && read.ok();
    if (good) n = *read;
  }
  void operator()(double& n) const {
    const Json* const value = next();
    good = good && value->is_number_float() && value->get<double>() >= 0 &&
           std::isfinite(value->get<double>());
    if (good) n = value->get<double>();
  }
};

std::optional<PackedFile> file_of(const Json& line) {
  if (auto e =
          check_fields(line, "data", "a file's line",
                       {"digest", "numbers", "options", "inputs", "ignored"});
      !e || !line["digest"].is_string() || !line["numbers"].is_array() ||
      !line["options"].is_string() || !line["inputs"].is_string() ||
      !line["ignored"].is_array()) {
    return std::nullopt;
  }
  PackedFile file;
  size_t at = 0;
  bool good = true;
  visit_numbers(file, ReadNumbers{line["numbers"], at, good});
  if (!good || at != line["numbers"].size()) return std::nullopt;
  file.digest = line["digest"].get<std::string>();
  file.after.options = line["options"].get<std::string>();
  file.after.inputs = line["inputs"].get<std::string>();
  for (const Json& name : line["ignored"]) {
    if (!name.is_string()) return std::nullopt;
    file.after.counted.ignored.insert(name.get<std::string>());
  }
  return file;
}

Json options_of(const RowFolderOptions& options) {
  const StreamOptions& s = options.stream;
  const PackOptions& p = s.pack;
  return {{"version", kVersion},
          {"tokens", p.tokens},
          {"strategy", to_string(p.strategy)},
          {"long", to_string(p.long_documents)},
          {"window_rows", p.window_rows},
          {"rows_per_step", p.rows_per_step},
          {"mixing", p.mixing},
          {"seed", p.seed},
          {"mask", p.mask ? Json(to_string(*p.mask)) : Json()},
          {"tile", fmt::format("{}x{}", p.tile.q, p.tile.kv)},
          {"pad_id", s.pad_id},
          {"max_chunks", s.max_chunks},
          {"max_edges", s.max_edges},
          {"strict_chunks", s.chunk_room == ChunkRoom::refuse},
          {"rows_per_file", options.rows_per_file},
          {"format", options.format}};
}

std::string text_of(const Json& value) {
  return value.is_string() ? on_a_line(value.get<std::string>()) : value.dump();
}

}  // namespace

Result<PackOrigin> pack_origin(const std::vector<std::string>& inputs,
                               const RowFolderOptions& options) {
  PackOrigin origin;
  Json names = Json::array();
  for (const std::string& input : inputs) {
    struct stat about {};
    if (::stat(input.c_str(), &about) != 0) return unreadable(input);
    origin.stays = origin.stays && S_ISREG(about.st_mode);
    names.push_back(fmt::format("'{}' of {} bytes, changed at {}.{:09}",
                                on_a_line(input), about.st_size,
                                about.st_mtim.tv_sec, about.st_mtim.tv_nsec));
  }
  origin.of = options_of(options);
  origin.of["inputs"] = std::move(names);
  return origin;
}

Result<void> check_same_inputs(const std::vector<std::string>& inputs,
                               const RowFolderOptions& options,
                               const PackOrigin& origin) {
  if (!origin.stays) return {};
  auto now = pack_origin(inputs, options);
  if (!now) return now.error();
  const Json& found = now->of["inputs"];
  const Json& was = origin.of["inputs"];
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (found[i] != was[i]) return changed_input(inputs[i]);
  }
  return {};
}

std::string_view format_of(const Json& origin) {
  if (origin.is_object() && origin.contains("format")) {
    for (const std::string_view format : kRowFormats) {
      if (origin["format"] == format) return format;
    }
  }
  return kRowFormats[0];  // old journals had no other
}

std::string difference(const Json& asked, const Json& begun) {
  if (asked == begun) return "";
  if (!begun.is_object()) return "no options";
  const Json none;
  for (const auto& [name, value] : asked.items()) {
    const auto at = begun.find(name);
    const Json& was = at == begun.end() ? none : *at;
    if (value == was) continue;
    if (!value.is_array() || !was.is_array()) {
      return fmt::format("{} {} for {}", name, text_of(value), text_of(was));
    }
    if (value.size() != was.size()) {
      return fmt::format("{} inputs for {}", value.size(), was.size());
    }
    for (size_t i = 0; i < value.size(); ++i) {
      if (value[i] == was[i]) continue;
      return fmt::format("input {} for {}", text_of(value[i]), text_of(was[i]));
    }
  }
  return "other options";
}

std::string journal_line(const Json& origin) { return line_of(origin); }

std::string journal_line(const PackedFile& file) {
  Json numbers = Json::array();
  visit_numbers(file, [&](const auto& n) { numbers.push_back(n); });
  return line_of({{"digest", file.digest},
                  {"numbers", std::move(numbers)},
                  {"options", file.after.options},
                  {"inputs", file.after.inputs},
                  {"ignored", file.after.counted.ignored}});
}

PackJournal read_journal(std::string_view text) {
  PackJournal journal;
  journal.origin = next_line(text);
  if (!journal.origin) return journal;
  while (auto line = next_line(text)) {
    auto file = file_of(**line);
    if (!file) break;
    journal.files.push_back(std::move(*file));
  }
  return journal;
}

}  // namespace tessera::data
