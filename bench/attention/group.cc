// bench/attention/group.cc: measures our rows and the peers in turn.
#include "bench/attention/group.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/dtype_word.h"
#include "base/files.h"
#include "base/npy.h"
#include "bench/attention/run.h"

namespace tessera::bench {
namespace {

// Writes the document ids for the peers and returns the path.
Result<std::string> write_ids(const TempFolder& folder, int64_t tokens) {
  const std::string path = folder.file(fmt::format("documents{}.npy", tokens));
  const int64_t shape[] = {tokens};
  auto bytes = write_npy(shape, packed_ids(tokens));
  if (!bytes) return bytes.error();
  if (auto w = write_file(path, *bytes); !w) return w.error();
  return path;
}

Result<void> measure_rows(AttentionGroup& group, const AttentionSettings& s,
                          double seconds) {
  for (BenchRow& row : group.rows) {
    show_progress(fmt::format("{} {} {}, {} tokens", row.what->name,
                              dtype_word(row.dtype), to_string(row.direction),
                              row.tokens));
    if (row.dtype == Dtype::bf16 && s.isa < Isa::avx512bf16 && !s.isa_forced) {
      row.why = "this machine has no AVX512-BF16";
      continue;
    }
    auto times = measure_ours(row, s.isa, seconds);
    if (!times) return times.error();
    row.ours = row.ours ? joined(*row.ours, *times) : std::move(*times);
  }
  show_progress("");
  return {};
}

}  // namespace

void show_progress(const std::string& text) {
  if (!isatty(STDERR_FILENO)) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
}

void add_rows(AttentionGroup& group, const AttentionFlags& o,
              const AttentionSettings& s) {
  for (const Direction d : {Direction::forward, Direction::backward}) {
    if (d == Direction::backward && !o.backward) continue;
    for (const AttentionCase* c : s.cases) {
      // A decode case has its own length and measures bytes, so it is run only
      // once, forward in bf16.
      if (c->decode &&
          (d == Direction::backward || group.dtype != Dtype::bf16 ||
           group.tokens != s.tokens.front())) {
        continue;
      }
      BenchRow row;
      row.what = c;
      row.dtype = group.dtype;
      row.direction = d;
      row.tokens = group.tokens;
      row.head_dim = group.head_dim;
      row.threads = group.threads;
      row.peaks = group.peaks;
      row.every_peer_ran = o.peers.has_value();
      group.rows.push_back(row);
    }
  }
}

Result<void> measure_group(AttentionGroup& group, const AttentionFlags& o,
                           const AttentionSettings& s,
                           const TempFolder& folder) {
  if (!o.peers) return measure_rows(group, s, s.seconds);
  if (auto r = measure_rows(group, s, s.seconds / 2); !r) return r;
  PeerRequest request;
  request.folder = *o.peers;
  auto docs = write_ids(folder, group.tokens);
  if (!docs) return docs.error();
  request.docs = *docs;
  for (const BenchRow& row : group.rows) {
    if (row.direction == Direction::forward) {
      request.cases.push_back(row.what->name);
    }
  }
  request.dtype = group.dtype;
  request.tokens = group.tokens;
  request.head_dim = group.head_dim;
  request.threads = group.threads;
  request.backward = o.backward;
  request.isa = s.isa;
  request.seconds = s.seconds;
  request.limit = s.peer_limit;
  for (const PeerScript& script : peer_scripts()) {
    show_progress(fmt::format("peer {}, {} tokens", script.name, group.tokens));
    group.peers.push_back(run_peer(script, request));
    join_peers(group.peers.back(), group.rows);
  }
  show_progress("");
  return measure_rows(group, s, s.seconds / 2);
}

}  // namespace tessera::bench
