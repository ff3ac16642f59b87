#include "schedule/bundles.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::schedule {
namespace {

constexpr std::string_view kWhere = "schedule";
constexpr std::string_view kKeyEnd = "= control target key end";
// The vendor's bound for a grid dimension that it does not know.
constexpr int64_t kRuntimeBound = 2147483647;
constexpr size_t kMaxSources = 1 << 16;
constexpr size_t kMaxWindows = 1024;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (is_space(s.front()) || s.front() == '\n')) {
    s.remove_prefix(1);
  }
  while (!s.empty() && (is_space(s.back()) || s.back() == '\n')) {
    s.remove_suffix(1);
  }
  return s;
}

// The number at the start of `s`, which is removed from `s`.
std::optional<int64_t> take_number(std::string_view& s, int base = 10) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(s.data(), s.data() + s.size(), value, base);
  if (error != std::errc()) return {};
  s.remove_prefix(static_cast<size_t>(end - s.data()));
  return value;
}

std::optional<int64_t> whole_number(std::string_view s) {
  auto n = take_number(s);
  return n && s.empty() ? n : std::nullopt;
}

// The text after `key` in `text`.
std::optional<std::string_view> after(std::string_view text,
                                      std::string_view key) {
  const size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  return text.substr(at + key.size());
}

// The rest of "(8, 128, 128)" or "[1,256,128]" after the opening bracket.
std::optional<std::vector<int64_t>> take_list(std::string_view& s, char close) {
  std::vector<int64_t> out;
  while (true) {
    while (!s.empty() && is_space(s.front())) s.remove_prefix(1);
    if (!s.empty() && s.front() == close && out.empty()) break;
    const auto n = take_number(s);
    if (!n || s.empty()) return {};
    out.push_back(*n);
    if (s.front() == close) break;
    if (s.front() != ',') return {};
    s.remove_prefix(1);
  }
  s.remove_prefix(1);
  return out;
}

// One bundle as text: ops without comments, and the comments.
struct BundleText {
  std::vector<std::string> ops;
  std::vector<std::string_view> comments;
};

class BundleReader {
 public:
  explicit BundleReader(std::string_view text) : text_(text) {}

  Result<void> header() {
    const size_t end = text_.find(kKeyEnd);
    if (end == std::string_view::npos) {
      return invalid(kWhere,
                     "final bundles must start with their key of labels, found "
                     "{}",
                     in_quotes(text_.substr(0, 40)));
    }
    at_ = end + kKeyEnd.size();
    return {};
  }

  // False at the end of the text.
  Result<bool> next(int64_t expected, BundleText& out) {
    out.ops.clear();
    out.comments.clear();
    skip_blank();
    if (at_ == text_.size()) return false;
    if (Result<void> r = address(expected); !r) return r.error();
    if (Result<void> r = body(expected, out); !r) return r.error();
    if (Result<void> r = tail(expected, out); !r) return r.error();
    return true;
  }

 private:
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void skip_spaces() {
    while (is_space(peek())) ++at_;
  }
  void skip_blank() {
    while (is_space(peek()) || peek() == '\n') ++at_;
  }
  std::string found() const {
    const std::string_view rest = text_.substr(std::min(at_, text_.size()), 40);
    return rest.empty() ? "the end" : in_quotes(rest);
  }

  Result<void> address(int64_t expected) {
    std::string_view rest = text_.substr(at_);
    if (rest.starts_with("0x")) rest.remove_prefix(2);
    const auto n = take_number(rest, 16);
    if (!n || *n != expected) {
      return invalid(kWhere,
                     "bundles must be numbered from 0 without a gap, found {} "
                     "for bundle {:#x}",
                     found(), expected);
    }
    at_ = text_.size() - rest.size();
    skip_spaces();
    while (peek() >= 'A' && peek() <= 'Z') ++at_;  // LB, PF: for human readers
    skip_spaces();
    if (peek() != ':') return malformed("a colon", expected);
    ++at_;
    while (is_space(peek()) || peek() == '>') ++at_;
    if (peek() != '{') return malformed("its opening brace", expected);
    ++at_;
    return {};
  }

  Error malformed(std::string_view what, int64_t bundle) const {
    return invalid(kWhere, "a bundle must have {}, found {} for bundle {:#x}",
                   what, found(), bundle);
  }

  Result<void> comment(int64_t bundle, BundleText& out) {
    const size_t end = text_.find("*/", at_ + 2);
    if (end == std::string_view::npos) {
      return malformed("an end of each comment", bundle);
    }
    out.comments.push_back(trimmed(text_.substr(at_ + 2, end - at_ - 2)));
    at_ = end + 2;
    return {};
  }

  Result<void> body(int64_t bundle, BundleText& out) {
    std::string op;
    const auto flush = [&] {
      const std::string_view t = trimmed(op);
      if (!t.empty()) out.ops.emplace_back(t);
      op.clear();
    };
    for (int64_t depth = 0;;) {
      const std::string_view rest = text_.substr(at_);
      if (rest.empty()) return malformed("a closing brace", bundle);
      if (rest.starts_with("/*")) {
        // "/*hbm=*/" names an argument, which the op keeps.
        const size_t end = rest.find("*/");
        if (end != std::string_view::npos &&
            rest.substr(0, end).ends_with('=')) {
          op += rest.substr(0, end + 2);
          at_ += end + 2;
        } else if (Result<void> r = comment(bundle, out); !r) {
          return r.error();
        }
        continue;
      }
      if (rest.starts_with(";;") && depth == 0) {
        flush();
        at_ += 2;
        continue;
      }
      if (rest.front() == '{') ++depth;
      if (rest.front() == '}' && depth-- == 0) break;
      op += rest.front();
      ++at_;
    }
    ++at_;
    flush();
    return {};
  }

  Result<void> tail(int64_t bundle, BundleText& out) {
    while (true) {
      skip_spaces();
      if (peek() == '\n') {
        ++at_;
        return {};
      }
      if (at_ == text_.size()) return {};
      if (!text_.substr(at_).starts_with("/*")) {
        return malformed("a line's end behind its brace", bundle);
      }
      if (Result<void> r = comment(bundle, out); !r) return r.error();
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

// The two sides of an op's "=": "%p1 = scmp.ge..." in two.
struct Definition {
  std::string_view name;
  std::string_view value;
};

Definition definition(std::string_view op) {
  if (op.starts_with('%')) {
    const size_t equals = op.find(" = ");
    if (equals != std::string_view::npos) {
      return {op.substr(0, equals), trimmed(op.substr(equals + 3))};
    }
  }
  return {{}, op};
}

class KernelReader {
 public:
  KernelReader(std::string_view name, KernelText& out) : out_(out) {
    out_.name = name;
  }

  Result<void> bundles(std::string_view text) {
    BundleReader reader(text);
    if (Result<void> r = reader.header(); !r) return r;
    BundleText raw;
    while (true) {
      const auto n = static_cast<int64_t>(out_.bundles.size());
      auto more = reader.next(n, raw);
      if (!more) return more.error();
      if (!*more) break;
      bundle_ = &out_.bundles.emplace_back();
      bundle_windowed_ = false;
      out_.exits = false;
      for (std::string_view c : raw.comments) comment(c);
      for (std::string_view op : raw.ops) {
        if (Result<void> r = read_op(op, n); !r) return r;
      }
    }
    if (out_.bundles.empty()) {
      return invalid(kWhere, "final bundles must hold a bundle, found none");
    }
    for (Bundle& b : out_.bundles) find_limit(b);
    const auto key = [](const Window& w) {
      return std::pair(w.output, w.operand);
    };
    std::stable_sort(
        out_.windows.begin(), out_.windows.end(),
        [&](const Window& a, const Window& b) { return key(a) < key(b); });
    return {};
  }

 private:
  void comment(std::string_view text) {
    if (text.find("iteration index, stage") != std::string_view::npos) {
      bundle_->pipeline = true;
      pipelined_ = true;
    }
    if (auto rest = after(text, "iteration_bounds: (")) read_grid(*rest);
    if (auto rest = after(text, "entry bundle: %")) read_opcode(*rest);
    if (text.starts_with("exit bundle: %")) out_.exits = true;
    if (text.find("window allocation for operator") != std::string_view::npos) {
      read_window(text);
    }
    // Several notes share a comment.
    while (!text.empty()) {
      const size_t cut = text.find(" :: ");
      note(trimmed(text.substr(0, cut)));
      if (cut == std::string_view::npos) break;
      text.remove_prefix(cut + 4);
    }
  }

  void note(std::string_view text) {
    for (std::string_view key : {"Start region ", "Start/End empty region "}) {
      if (!text.starts_with(key)) continue;
      if (auto n = whole_number(text.substr(key.size()))) {
        bundle_->starts.push_back(*n);
      }
    }
    if (text.starts_with("loc(\"")) read_source(text.substr(5));
  }

  void read_grid(std::string_view text) {
    bundle_windowed_ = true;
    auto grid = take_list(text, ')');
    if (!grid || !out_.grid.empty()) return;
    for (int64_t& n : *grid) {
      if (n <= 0 || n >= kRuntimeBound) n = -1;
    }
    out_.grid = std::move(*grid);
  }

  // "%name = custom-call(...)"
  void read_opcode(std::string_view text) {
    const size_t equals = text.find(" = ");
    if (equals == std::string_view::npos) return;
    text.remove_prefix(equals + 3);
    const size_t end = text.find('(');
    if (end <= 40) out_.opcode = text.substr(0, end);
  }

  // "input window allocation for operator input 2. The window shape is
  // bf16[1,256,128], while the full shape is bf16[8,4096,128]. ..."
  void read_window(std::string_view text) {
    Window w;
    w.output = text.starts_with("output");
    auto rest = after(text, w.output ? "operator output " : "operator input ");
    if (!rest) return;
    const auto operand = take_number(*rest);
    auto shape = after(*rest, "The window shape is ");
    auto full = after(*rest, "the full shape is ");
    if (!operand || !shape || !full) return;
    w.operand = *operand;
    const size_t open = shape->find('[');
    const size_t open_full = full->find('[');
    if (open > 16 || open_full > 16) return;
    w.dtype = shape->substr(0, open);
    shape->remove_prefix(open + 1);
    full->remove_prefix(open_full + 1);
    auto dims = take_list(*shape, ']');
    auto full_dims = take_list(*full, ']');
    if (!dims || !full_dims) return;
    w.shape = std::move(*dims);
    w.full = std::move(*full_dims);
    for (const Window& known : out_.windows) {
      if (known.output == w.output && known.operand == w.operand) return;
    }
    if (out_.windows.size() < kMaxWindows) out_.windows.push_back(std::move(w));
  }

  // `file":17:4 to :9)`: a bare word as the file is a tag; of a real file, the
  // last part of its path and the line are kept.
  void read_source(std::string_view text) {
    const size_t quote = text.find('"');
    if (quote == std::string_view::npos) return;
    std::string_view file = text.substr(0, quote);
    const bool real =
        file == "-" || file.find_first_of("./") != std::string_view::npos;
    std::string name(file.substr(file.rfind('/') + 1));
    text.remove_prefix(quote + 1);
    if (real && text.starts_with(':')) {
      text.remove_prefix(1);
      if (auto line = take_number(text)) name += fmt::format(":{}", *line);
    }
    if (name.empty()) return;
    const auto next = static_cast<uint32_t>(out_.sources.size());
    const auto known = source_ids_.find(name);
    if (known != source_ids_.end()) {
      bundle_->sources.push_back(known->second);
    } else if (out_.sources.size() < kMaxSources) {
      source_ids_.emplace(name, next);
      out_.sources.push_back(std::move(name));
      bundle_->sources.push_back(next);
    }
  }

  Result<void> read_op(std::string_view op, int64_t bundle) {
    const auto [name, value] = definition(op);
    if (value.starts_with("sbr")) return read_branch(value, bundle);
    if (value.starts_with("dma.") && !value.starts_with("dma.done")) {
      read_transfer(value);
    }
    for (std::string_view kept :
         {"scmp.ge.s32", "sadd.s32", "sphi", "smov.u32"}) {
      if (!name.empty() && value.starts_with(kept)) {
        defined_.emplace(name, value);
      }
    }
    return {};
  }

  // "sbr.rel (!%p1) target = $region36"
  Result<void> read_branch(std::string_view op, int64_t bundle) {
    auto rest = after(op, "target = $region");
    const auto number = rest ? take_number(*rest) : std::nullopt;
    if (!number || !trimmed(*rest).empty() || bundle_->branch) {
      return invalid(kWhere,
                     "a bundle's one branch must name a region, found {} for "
                     "bundle {:#x}",
                     in_quotes(op), bundle);
    }
    Branch b;
    b.region = *number;
    const size_t open = op.find('(');
    b.always = open == std::string_view::npos;
    if (!b.always) {
      std::string_view predicate = op.substr(open + 1);
      predicate = predicate.substr(0, predicate.find(')'));
      if (predicate.starts_with('!')) {
        predicates_.emplace(b.region, std::string(predicate.substr(1)));
      }
    }
    bundle_->branch = b;
    return {};
  }

  // "dma.hbm_to_vmem [thread:$0] (!%p3), /*hbm=*/%s1, ..."
  void read_transfer(std::string_view op) {
    Transfer t;
    const std::string_view kind = op.substr(0, op.find_first_of(" ,"));
    // A general DMA does not tell its direction and counts as a read.
    const bool general = kind.starts_with("dma.general");
    t.reads = general || kind.starts_with("dma.hbm_to_");
    t.writes = !general && kind.ends_with("_to_hbm");
    if (!t.reads && !t.writes) return;
    if (auto size = after(op, "/*size_in_granules=*/")) {
      const auto n = take_number(*size);
      if (n && *n >= 0 && *n < int64_t{1} << 36) t.granules = *n;
    }
    const size_t arguments = op.find("/*");
    t.predicated = op.substr(0, arguments).find('(') != std::string_view::npos;
    t.window = bundle_windowed_;
    bundle_->transfers.push_back(t);
  }

  // Finds the limit of a counter that starts at 0, grows by 1 and is tested
  // against a constant. In a pipeline the counter is spilled, but always does
  // both.
  void find_limit(Bundle& b) {
    if (!b.branch || b.branch->always) return;
    const auto predicate = predicates_.find(b.branch->region);
    if (predicate == predicates_.end()) return;
    const auto [test, limit] = two(predicate->second, "scmp.ge.s32");
    const auto n = whole_number(limit);
    if (!n || *n < 1) return;
    const auto [step, counter] = two(test, "sadd.s32");
    if (step != "1") return;
    const auto [start, again] = two(counter, "sphi");
    if (again.empty() ? pipelined_ : again == test && is_zero(start)) {
      b.branch->limit = *n;
    }
  }

  // "smov.u32 0", possibly predicated.
  bool is_zero(std::string_view name) const {
    const auto found = defined_.find(std::string(name));
    if (found == defined_.end()) return name == "0";
    const std::string_view op = found->second;
    return op == "smov.u32 0" ||
           (op.starts_with("smov.u32 (") && op.ends_with("), 0"));
  }

  // The two operands of the op that defines `name`, if its opcode is `opcode`.
  std::pair<std::string_view, std::string_view> two(
      std::string_view name, std::string_view opcode) const {
    const auto found = defined_.find(std::string(name));
    if (found == defined_.end()) return {};
    std::string_view op = found->second;
    if (!op.starts_with(opcode)) return {};
    op.remove_prefix(std::min(op.find(' '), op.size()));
    const size_t comma = op.find(", ");
    if (comma == std::string_view::npos) return {};
    return {trimmed(op.substr(0, comma)), trimmed(op.substr(comma + 2))};
  }

  KernelText& out_;
  Bundle* bundle_ = nullptr;
  bool bundle_windowed_ = false;
  bool pipelined_ = false;
  std::map<std::string, uint32_t, std::less<>> source_ids_;
  std::unordered_map<std::string, std::string> defined_;
  std::unordered_map<int64_t, std::string>
      predicates_;  // name in "(!%p)", by region
};

// The first line of `s`, which is removed from `s`.
std::string_view take_line(std::string_view& s) {
  const size_t end = s.find('\n');
  const std::string_view line = trimmed(s.substr(0, end));
  s.remove_prefix(end == std::string_view::npos ? s.size() : end + 1);
  return line;
}

Result<SlotCounts> read_row(std::string_view line, std::string_view what) {
  SlotCounts out{};
  std::string_view rest = line;
  for (int64_t& value : out) {
    rest = trimmed(rest);
    const auto n = take_number(rest);
    if (!n || *n < 0 || *n > 64) {
      return invalid(kWhere, "{} must be {} small numbers, found {}", what,
                     kSlots, in_quotes(line));
    }
    value = *n;
  }
  if (!trimmed(rest).empty()) {
    return invalid(kWhere, "{} must be {} small numbers, found {}", what,
                   kSlots, in_quotes(line));
  }
  return out;
}

Result<void> read_slots(std::string_view text, KernelText& out) {
  const std::string names = fmt::format("{}", fmt::join(kSlotNames, ", "));
  // "CAPACTIY" is the vendor's spelling.
  for (std::string_view expected :
       {std::string_view("== CAPACTIY:"), std::string_view(names)}) {
    const std::string_view line = take_line(text);
    if (line != expected) {
      return invalid(kWhere, "the table of slots must say {}, found {}",
                     in_quotes(expected), in_quotes(line));
    }
  }
  auto capacity = read_row(take_line(text), "the capacities of slots");
  if (!capacity) return capacity.error();
  out.capacity = *capacity;
  if (std::count(out.capacity.begin(), out.capacity.end(), 0) > 0) {
    return invalid(kWhere, "capacities of slots must be positive, found 0");
  }
  if (const auto line = take_line(text); line != "== UTILIZATION:") {
    return invalid(kWhere, "the table of slots must say {}, found {}",
                   in_quotes("== UTILIZATION:"), in_quotes(line));
  }
  size_t rows = 0;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    if (line.empty() && trimmed(text).empty()) break;
    auto used = read_row(line, "the slots of a bundle");
    if (!used) return used.error();
    for (size_t s = 0; s < kSlots; ++s) {
      if ((*used)[s] <= out.capacity[s]) continue;
      return invalid(kWhere,
                     "a bundle must fit its slots, found {} for the {} of {}",
                     (*used)[s], out.capacity[s], kSlotNames[s]);
    }
    if (rows < out.bundles.size()) out.bundles[rows].used = *used;
    ++rows;
  }
  if (rows != out.bundles.size()) {
    return invalid(kWhere,
                   "both dumps of a kernel must have as many bundles, found {} "
                   "rows of slots for {} bundles",
                   rows, out.bundles.size());
  }
  return {};
}

}  // namespace

Result<KernelText> parse_kernel(std::string_view name, std::string_view bundles,
                                std::string_view slots) {
  KernelText out;
  if (Result<void> r = KernelReader(name, out).bundles(bundles); !r) {
    return r.error();
  }
  if (Result<void> r = read_slots(slots, out); !r) return r.error();
  return out;
}

}  // namespace tessera::schedule
