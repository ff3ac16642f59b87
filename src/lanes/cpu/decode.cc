// lanes/cpu/decode.cc: runs a plan of few queries, split over keys.
//
// A team is some heads of one K/V head of one batch row, with all their
// queries: the rows that read the same K and V. The team's active keys are cut
// into parts of kDecodeKeys, in ascending order, and a task is one part of one
// team. The worker that finishes a team's last task merges the parts in order.
// So both the sums and their merge depend on the plan alone, and the bits of a
// result do not depend on the threads.
//
// Most keys are legal for all rows of a team. Keys that are legal only for some
// rows are run with those rows alone: no row reads an illegal key.
#include "lanes/cpu/decode.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/integers.h"
#include "kernels/decode/decode.h"
#include "lanes/cpu/call.h"
#include "lanes/cpu/chunks.h"
#include "lanes/cpu/scratch.h"
#include "lanes/cpu/tasks.h"

namespace tessera::cpu {
namespace {

// Adjacent active keys. `full`: all are legal for every query.
struct Range {
  kernels::KeyRun keys;
  bool full = false;
};

// The active keys of some lists of one batch row, cut into parts. There is at
// least one part, which may be empty.
struct Parts {
  int64_t first_list = 0, last_list = 0;
  std::vector<Range> ranges;
  std::vector<size_t> starts;  // of each part in `ranges`, and the end of all

  int64_t count() const { return static_cast<int64_t>(starts.size()) - 1; }
  std::span<const Range> part(int64_t i) const {
    const size_t begin = starts[static_cast<size_t>(i)];
    return {ranges.data() + begin, starts[static_cast<size_t>(i) + 1] - begin};
  }
};

Parts parts_of(const CpuWork::State& work, int64_t first_list,
               int64_t last_list) {
  // The active columns of every list.
  std::vector<ActiveColumn> all, columns;
  const int64_t rows = (work.sizes.q_len - 1) / work.tile.q + 1;
  for (int64_t list = first_list; list <= last_list; ++list) {
    active_columns(work.forward, list, 0, rows, columns);
    all.insert(all.end(), columns.begin(), columns.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const ActiveColumn& a, const ActiveColumn& b) {
                     return a.column < b.column;
                   });
  Parts parts{first_list, last_list, {}, {0}};
  int64_t keys = 0;
  for (size_t i = 0, next = 0; i < all.size(); i = next) {
    bool full = true;
    for (next = i; next < all.size() && all[next].column == all[i].column;
         ++next) {
      full &= all[next].full;
    }
    full &= static_cast<int64_t>(next - i) == last_list - first_list + 1;
    int64_t begin = all[i].column * work.tile.kv;
    const int64_t end = std::min(begin + work.tile.kv, work.sizes.kv_len);
    while (begin < end) {
      if (keys == kDecodeKeys) {
        parts.starts.push_back(parts.ranges.size());
        keys = 0;
      }
      const int64_t to = std::min(end, begin + kDecodeKeys - keys);
      const bool same_part = parts.ranges.size() > parts.starts.back();
      if (same_part && parts.ranges.back().full == full &&
          parts.ranges.back().keys.end == begin) {
        parts.ranges.back().keys.end = to;
      } else {
        parts.ranges.push_back({{begin, to}, full});
      }
      keys += to - begin;
      begin = to;
    }
  }
  parts.starts.push_back(parts.ranges.size());
  return parts;
}

struct Team {
  int64_t b = 0, kv = 0, head_begin = 0, head_end = 0;
  size_t parts = 0;           // index of its Parts
  int64_t first_task = 0;     // it has one task for each part
  int64_t sums = 0, out = 0;  // where its sums and outputs begin: [parts][rows]

  int64_t rows(int64_t q_len) const { return (head_end - head_begin) * q_len; }
};

// Rows [begin, end) of a team, whose legal keys are those of query `q` of list
// `list`.
struct Alike {
  int64_t list = 0, q = 0, begin = 0, end = 0;
  std::vector<kernels::KeyRun> keys;  // legal for these rows, but not for all
};

// The rows of a team. Rows with the same legal keys are adjacent.
struct Rows {
  struct Row {
    int64_t head = 0, q = 0;
  };
  std::vector<Row> rows;
  std::vector<Alike> alike;

  void read(const Team& team, const lanes::PlanSizes& sizes,
            const HeadMap& map) {
    rows.clear();
    size_t n = 0;
    for (int64_t h = team.head_begin, next = h; h < team.head_end; h = next) {
      const int64_t plan_head = map.plan_head(h);
      while (next < team.head_end && map.plan_head(next) == plan_head) ++next;
      for (int64_t q = 0; q < sizes.q_len; ++q) {
        const auto begin = static_cast<int64_t>(rows.size());
        for (int64_t head = h; head < next; ++head) rows.push_back({head, q});
        if (alike.size() == n) alike.emplace_back();
        Alike& a = alike[n++];
        a.list = team.b * sizes.heads + plan_head;
        a.q = q;
        a.begin = begin;
        a.end = static_cast<int64_t>(rows.size());
      }
    }
    alike.resize(n);
  }
};

// Splits the legal keys of one part into those of all rows and those of some.
class KeySorter {
 public:
  void read(const CpuWork::State& work, std::span<const Range> ranges,
            std::vector<Alike>& alike) {
    shared_.clear();
    for (Alike& a : alike) a.keys.clear();
    for (const Range& range : ranges) {
      if (range.full) {
        shared_.push_back(range.keys);
      } else {
        add_partial(work, range.keys, alike);
      }
    }
  }
  std::span<const kernels::KeyRun> shared() const { return shared_; }

 private:
  struct Edge {
    int64_t key = 0;
    int64_t change = 0;  // in how many of `alike` attend
  };

  void add_partial(const CpuWork::State& work, const kernels::KeyRun& range,
                   std::vector<Alike>& alike) {
    const auto clipped = [&](const Alike& a, auto visit) {
      const auto spans = work.keys_of(a.list, a.q);
      auto s = std::partition_point(
          spans.begin(), spans.end(),
          [&](const KeySpan& span) { return span.end <= range.begin; });
      for (; s != spans.end() && s->begin < range.end; ++s) {
        visit(kernels::KeyRun{std::max<int64_t>(s->begin, range.begin),
                              std::min<int64_t>(s->end, range.end)});
      }
    };
    if (alike.size() == 1) {
      clipped(alike[0], [&](kernels::KeyRun run) { shared_.push_back(run); });
      return;
    }
    edges_.clear();
    for (const Alike& a : alike) {
      clipped(a, [&](kernels::KeyRun run) {
        edges_.push_back({run.begin, 1});
        edges_.push_back({run.end, -1});
      });
    }
    std::sort(edges_.begin(), edges_.end(),
              [](const Edge& a, const Edge& b) { return a.key < b.key; });
    const size_t first = shared_.size();
    int64_t attend = 0;
    for (size_t i = 0; i < edges_.size();) {
      const int64_t key = edges_[i].key;
      const auto all = static_cast<int64_t>(alike.size());
      if (attend == all) shared_.back().end = key;
      for (; i < edges_.size() && edges_[i].key == key; ++i) {
        attend += edges_[i].change;
      }
      if (attend == all) shared_.push_back({key, key});
    }
    for (Alike& a : alike) {
      size_t s = first;
      clipped(a, [&](kernels::KeyRun run) {
        for (; s < shared_.size() && shared_[s].begin < run.end; ++s) {
          // Every shared run lies within one run of `a`.
          if (run.begin < shared_[s].begin) {
            a.keys.push_back({run.begin, shared_[s].begin});
          }
          run.begin = shared_[s].end;
        }
        if (run.begin < run.end) a.keys.push_back(run);
      });
    }
  }

  std::vector<kernels::KeyRun> shared_;
  std::vector<Edge> edges_;
};

// What a worker keeps between tasks.
struct Worker {
  int64_t team = -1;
  Rows rows;
  KeySorter keys;
  int64_t pairs = 0, tiles = 0;
};

}  // namespace

// Memory that a call leaves for the next one.
struct DecodeMemory {
  std::vector<Parts> parts;
  std::vector<Team> teams;
  std::unique_ptr<std::atomic<int64_t>[]> left;  // tasks to do, by team
  size_t left_size = 0;
  std::vector<kernels::DecodeSums> sums;
  Scratch out;
  std::vector<Worker> workers;
};

namespace {

// One call.
class Decoding {
 public:
  Decoding(const CpuWork::State& work, const AttentionShape& shape,
           const ForwardTensors& tensors, const kernels::DecodeVariant& variant,
           int threads, DecodeMemory& memory)
      : m_(memory),
        work_(work),
        shape_(shape),
        tensors_(tensors),
        variant_(variant),
        map_{shape.heads, shape.kv_heads, work.sizes.heads},
        pitch_(kernels::decode_pitch(shape.v_head_dim)) {
    m_.parts.clear();
    m_.teams.clear();
    m_.workers.resize(static_cast<size_t>(threads));
    for (Worker& worker : m_.workers) {
      worker.team = -1;
      worker.pairs = worker.tiles = 0;
    }
    make_teams();
    if (m_.left_size < m_.teams.size()) {
      m_.left = std::make_unique<std::atomic<int64_t>[]>(m_.teams.size());
      m_.left_size = m_.teams.size();
    }
    int64_t sums = 0, out = 0;
    for (size_t i = 0; i < m_.teams.size(); ++i) {
      Team& team = m_.teams[i];
      const int64_t parts = m_.parts[team.parts].count();
      m_.left[i].store(parts, std::memory_order_relaxed);
      team.first_task = tasks_;
      team.sums = sums;
      team.out = out;
      tasks_ += parts;
      sums += parts * team.rows(work.sizes.q_len);
      out += parts * team.rows(work.sizes.q_len) * pitch_;
    }
    m_.sums.assign(static_cast<size_t>(sums), {});
    m_.out.floats(static_cast<size_t>(out));
  }

  int64_t tasks() const { return tasks_; }
  int64_t tiles() const {
    int64_t tiles = 0;
    for (const Worker& worker : m_.workers) tiles += worker.tiles;
    return tiles;
  }
  int64_t pairs() const {
    int64_t pairs = 0;
    for (const Worker& worker : m_.workers) pairs += worker.pairs;
    return pairs;
  }

  void run(int64_t task, int worker_number) {
    const auto after = std::partition_point(
        m_.teams.begin(), m_.teams.end(),
        [&](const Team& t) { return t.first_task <= task; });
    const int64_t number = after - m_.teams.begin() - 1;
    const Team& team = m_.teams[static_cast<size_t>(number)];
    Worker& worker = m_.workers[static_cast<size_t>(worker_number)];
    if (worker.team != number) {
      worker.rows.read(team, work_.sizes, map_);
      worker.team = number;
    }
    add_part(team, task - team.first_task, worker);
    // Acquires the sums of other tasks and releases the sums of this one.
    if (m_.left[static_cast<size_t>(number)].fetch_sub(
            1, std::memory_order_acq_rel) == 1) {
      merge(team, worker.rows);
      for (int64_t h = team.head_begin; h < team.head_end; ++h) {
        worker.tiles += tiles_of(work_.forward,
                                 team.b * work_.sizes.heads + map_.plan_head(h),
                                 work_.tile.q, 0, work_.sizes.q_len);
      }
    }
  }

 private:
  void make_teams() {
    const lanes::PlanSizes& sizes = work_.sizes;
    const int64_t group = shape_.heads / shape_.kv_heads;
    // The fewest teams that fit kDecodeRows, of about equal size.
    const int64_t most =
        std::max<int64_t>(kernels::kDecodeRows / sizes.q_len, 1);
    const int64_t cuts = ceil_div(group, most);
    for (int64_t b = 0; b < sizes.batch; ++b) {
      for (int64_t kv = 0; kv < shape_.kv_heads; ++kv) {
        for (int64_t cut = 0; cut < cuts; ++cut) {
          Team team;
          team.b = b;
          team.kv = kv;
          team.head_begin = kv * group + group * cut / cuts;
          team.head_end = kv * group + group * (cut + 1) / cuts;
          const int64_t first =
              b * sizes.heads + map_.plan_head(team.head_begin);
          const int64_t last =
              b * sizes.heads + map_.plan_head(team.head_end - 1);
          if (m_.parts.empty() || m_.parts.back().first_list != first ||
              m_.parts.back().last_list != last) {
            m_.parts.push_back(parts_of(work_, first, last));
          }
          team.parts = m_.parts.size() - 1;
          m_.teams.push_back(team);
        }
      }
    }
  }

  void add_part(const Team& team, int64_t part, Worker& worker) {
    Rows& rows = worker.rows;
    worker.keys.read(work_, m_.parts[team.parts].part(part), rows.alike);
    const auto count = static_cast<int64_t>(rows.rows.size());
    std::array<const void*, kernels::kDecodeRows> q{};
    for (size_t r = 0; r < rows.rows.size(); ++r) {
      q[r] = element(tensors_.q, team.b, rows.rows[r].head, rows.rows[r].q);
    }
    kernels::DecodeSums* const sums = m_.sums.data() + team.sums + part * count;
    float* const out = m_.out.floats(0) + team.out + part * count * pitch_;
    std::fill(out, out + count * pitch_, 0.0F);

    kernels::DecodeTask task;
    task.dtype = tensors_.q.dtype;
    task.head_dim = shape_.head_dim;
    task.v_head_dim = shape_.v_head_dim;
    task.k = element(tensors_.k, team.b, team.kv, 0);
    task.v = element(tensors_.v, team.b, team.kv, 0);
    task.k_stride = tensors_.k.token_stride;
    task.v_stride = tensors_.v.token_stride;
    task.scale = scale_of(shape_);
    task.softcap = static_cast<float>(shape_.softcap);
    task.scratch = thread_scratch().floats(static_cast<size_t>(
        kernels::decode_scratch(shape_.head_dim, shape_.v_head_dim)));
    task.pairs = &worker.pairs;
    const auto add = [&](int64_t begin, int64_t end,
                         std::span<const kernels::KeyRun> keys) {
      if (keys.empty()) return;
      task.rows = end - begin;
      task.q = q.data() + begin;
      task.runs = keys.data();
      task.run_count = static_cast<int64_t>(keys.size());
      task.sums = sums + begin;
      task.out = out + begin * pitch_;
      variant_.run(task);
    };
    add(0, count, worker.keys.shared());
    for (const Alike& a : rows.alike) add(a.begin, a.end, a.keys);
  }

  void merge(const Team& team, const Rows& rows) {
    const auto count = static_cast<int64_t>(rows.rows.size());
    kernels::DecodeMerge merge;
    merge.dtype = tensors_.out.dtype;
    merge.parts = m_.parts[team.parts].count();
    merge.v_head_dim = shape_.v_head_dim;
    merge.sums_stride = count;
    merge.out_stride = count * pitch_;
    for (const Alike& a : rows.alike) {
      merge.live = work_.has_key(a.list, a.q);
      for (int64_t r = a.begin; r < a.end; ++r) {
        const int64_t head = rows.rows[static_cast<size_t>(r)].head;
        merge.sums = m_.sums.data() + team.sums + r;
        merge.out = m_.out.floats(0) + team.out + r * pitch_;
        merge.to = element(tensors_.out, team.b, head, a.q);
        if (tensors_.sink_logits) {
          merge.sink_logit = tensors_.sink_logits->data() + head;
        }
        if (!tensors_.lse.empty()) {
          merge.lse = tensors_.lse.data() +
                      (team.b * shape_.heads + head) * work_.sizes.q_len + a.q;
        }
        variant_.merge(merge);
      }
    }
  }

  DecodeMemory& m_;
  const CpuWork::State& work_;
  const AttentionShape& shape_;
  const ForwardTensors& tensors_;
  const kernels::DecodeVariant& variant_;
  HeadMap map_;
  int64_t pitch_;  // floats of a row of value sums
  int64_t tasks_ = 0;
};

}  // namespace

Result<CpuRun> decode(const CpuWork::State& work, const AttentionShape& shape,
                      const ForwardTensors& tensors, const CpuOptions& options,
                      Isa isa, const StopFlag* stop) {
  const kernels::DecodeVariant& variant =
      variant_for(kernels::decode_variants(), tensors.q.dtype, isa);
  Tasks tasks(options, stop);
  // Concurrent calls on other threads have memory of their own.
  const std::unique_lock lock(work.decode_mutex, std::try_to_lock);
  std::shared_ptr<DecodeMemory> memory;
  if (lock.owns_lock()) memory = work.decode_memory;
  if (!memory) memory = std::make_shared<DecodeMemory>();
  if (lock.owns_lock()) work.decode_memory = memory;
  Decoding decoding(work, shape, tensors, variant, tasks.threads(), *memory);
  auto e =
      tasks.run("parts of keys", decoding.tasks(), options.progress,
                [&](int64_t task, int worker) { decoding.run(task, worker); });
  if (!e) return e.error();
  CpuRun run = count_tiles(decoding.tiles(), work.forward, shape, work.sizes);
  run.isa = variant.isa;
  run.threads = tasks.threads();
  run.pairs_run = decoding.pairs();
  return run;
}

}  // namespace tessera::cpu
