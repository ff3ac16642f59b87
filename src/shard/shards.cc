// shard/shards.cc: spreads a batch over a mesh, stage by stage.
#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "base/trace.h"
#include "plan/batch_state.h"
#include "shard/check.h"
#include "shard/groups.h"
#include "shard/row_shards.h"
#include "tessera/batch.h"

namespace tessera {
namespace shard {
namespace {

// Part i of n nearly equal parts.
struct Span {
  int64_t begin = 0, size = 0;
};
Span part_of(int64_t total, int64_t n, int64_t i) {
  const int64_t begin = total * i / n;
  return {begin, total * (i + 1) / n - begin};
}

RowShards shards_of_rows(const Problem& p, Balance balance) {
  if (p.batch_rows == 0) return {};
  switch (balance) {
    case Balance::contiguous:
      return contiguous_rows(p);
    case Balance::headtail:
      return headtail_rows(p);
    case Balance::rows:
      return even_rows(p);
    case Balance::tasks:
      return even_tasks(p);
  }
  return contiguous_rows(p);
}

// The query tiles that a shard has room for. With Balance::rows this is the
// same for every batch of these lengths, unless a shard exceeds its row limit.
int64_t own_row_capacity(const Problem& p, const Owners& o, int64_t seq,
                         Balance balance) {
  std::vector<int64_t> rows(static_cast<size_t>(seq), 0);
  for (const int32_t s : o.row) ++rows[static_cast<size_t>(s)];
  const int64_t most = *std::max_element(rows.begin(), rows.end());
  return balance == Balance::rows ? std::max(most, p.row_cap * p.tiles_q)
                                  : most;
}

class Maker {
 public:
  Maker(const Batch& batch, const Mesh& mesh, const ShardOptions& options,
        const std::vector<RowShards>* row_shards)
      : plan_(batch.plan()),
        request_(batch.request()),
        options_(options),
        row_shards_(row_shards),
        data_(mesh.size("data")),
        head_(mesh.size("head")),
        seq_(mesh.size("seq")) {
    out_.mesh = mesh;
    out_.tile = plan_.tile;
    out_.balance = options.balance;
  }

  Result<Shards> make(const PlanContract& contract) {
    spread_rows();
    if (auto e = find_shapes(); !e) return e.error();
    for (size_t g = 0; g < groups_.size(); ++g) fill_group(g);
    if (auto e = find_steps(); !e) return e.error();
    out_.report = make_report(plan_, out_, options_, groups_);
    out_.specs = specs_of(out_, options_);
    if (auto e = check_specs(out_.mesh, out_.specs); !e) return e.error();
    out_.fingerprint = spec_fingerprint(out_.mesh, out_.specs);
    set_contract(contract, out_);
    return std::move(out_);
  }

 private:
  void spread_rows() {
    owners_.reserve(static_cast<size_t>(data_));
    for (int64_t d = 0; d < data_; ++d) {
      const Span rows = part_of(plan_.batch, data_, d);
      const Plan* const plan = &plan_;
      const Problem p = make_problem(request_, {&plan, 1}, options_, seq_,
                                     rows.begin, rows.size);
      const RowShards row_shards = row_shards_
                                       ? (*row_shards_)[static_cast<size_t>(d)]
                                       : shards_of_rows(p, options_.balance);
      owners_.push_back(make_owners(p, plan_, row_shards, rows.begin));
      if (rows.size == 0) continue;
      tied_ = p.tied;
      tiles_q_ = p.tiles_q;
      const Owners& o = owners_.back();
      const int64_t own = own_row_capacity(p, o, seq_, options_.balance);
      out_.shapes.own_rows = std::max(out_.shapes.own_rows, own);
      std::vector<int64_t> columns(static_cast<size_t>(seq_), 0);
      for (const int32_t s : o.column) ++columns[static_cast<size_t>(s)];
      const int64_t most = *std::max_element(columns.begin(), columns.end());
      // Tied rows and columns hold the same tokens.
      out_.shapes.own_columns =
          std::max({out_.shapes.own_columns, most,
                    p.tied ? own / p.tiles_q * p.tiles_kv : most});
    }
    for (int64_t d = 0; d < data_; ++d) {
      for (int64_t h = 0; h < head_; ++h) groups_.push_back(group_of(d, h));
    }
  }

  Group group_of(int64_t d, int64_t h) {
    const int64_t heads = options_.shape.heads;
    const int64_t of_group = heads / options_.shape.kv_heads;
    const Span kv = part_of(options_.shape.kv_heads, head_, h);
    Group g;
    g.owners = &owners_[static_cast<size_t>(d)];
    if (kv.size > 0) {
      // Query head h belongs to plan head h * plan heads / heads.
      const int64_t first = kv.begin * of_group;
      const int64_t last = first + kv.size * of_group - 1;
      g.first_list = first * plan_.heads / heads;
      g.lists = last * plan_.heads / heads - g.first_list + 1;
    }
    lists_ = std::max(lists_, g.lists);
    for (int64_t s = 0; s < seq_; ++s) {
      Shard shard;
      shard.data = d;
      shard.head = h;
      shard.seq = s;
      shard.first_batch_row = g.owners->first_batch_row;
      shard.batch_rows = g.owners->batch_rows;
      shard.first_kv_head = kv.begin;
      shard.kv_heads = kv.size;
      shard.first_head = kv.begin * of_group;
      shard.heads = kv.size * of_group;
      shard.first_list = g.first_list;
      shard.lists = g.lists;
      out_.shards.push_back(std::move(shard));
    }
    find_pairs(plan_, seq_, g);
    return g;
  }

  Result<void> find_shapes() {
    const ShardCeilings& most = options_.ceilings;
    std::vector<const Pairs*> kv;
    std::vector<const Pairs*> q;
    for (const Group& g : groups_) {
      kv.push_back(&g.kv);
      q.push_back(&g.q);
    }
    auto kv_rounds =
        make_rounds(kv, seq_, out_.shapes.own_columns, "kv", most.kv_rounds);
    if (!kv_rounds) return kv_rounds.error();
    out_.kv.rounds = std::move(*kv_rounds);
    // Only Balance::tasks sends q.
    if (options_.balance == Balance::tasks) {
      auto q_rounds =
          make_rounds(q, seq_, out_.shapes.own_rows, "q", most.q_rounds);
      if (!q_rounds) return q_rounds.error();
      out_.q.rounds = std::move(*q_rounds);
    }
    ShardShapes& s = out_.shapes;
    if (most.rows > 0) {
      if (s.own_rows > most.rows) {
        return over_limit("shard", "a shard may own {} query tiles, found {}",
                          most.rows, s.own_rows);
      }
      // Other lengths with the same contract have fewer than twice the tiles.
      const int64_t all = 2 * ceil_div(plan_.batch, data_) *
                          round_up(plan_.forward.rows, tiles_q_);
      if (most.rows > all) {
        return over_limit("shard",
                          "the ceiling of rows must be at most {}, twice all "
                          "query tiles, found {}",
                          all, most.rows);
      }
      s.own_rows = most.rows;
      if (tied_) {
        s.own_columns = std::max(
            s.own_columns, ceil_div(most.rows * out_.tile.q, out_.tile.kv));
      }
    }
    out_.exchange =
        choose_exchange(options_.exchange, s.own_columns, seq_, out_.kv.rounds);
    s.rows = s.own_rows + came_tiles(out_.q.rounds, false, seq_);
    s.columns = s.own_columns + came_tiles(out_.kv.rounds, gathered(), seq_);
    s.batch_rows = ceil_div(plan_.batch, data_);
    s.kv_heads = ceil_div(options_.shape.kv_heads, head_);
    s.heads = s.kv_heads * (options_.shape.heads / options_.shape.kv_heads);
    const int64_t tiles =
        (s.rows + s.columns) * static_cast<int64_t>(out_.shards.size());
    if (tiles > kMaxTiles) {
      return over_limit("shard", "all shards may hold {} tiles, found {}",
                        kMaxTiles, tiles);
    }
    return {};
  }

  // Whether columns are gathered; rows never are.
  bool gathered() const { return out_.exchange == TileExchange::gather; }

  void fill_group(size_t g) {
    const Group& group = groups_[g];
    const Owners& o = *group.owners;
    std::vector<std::vector<int32_t>> local_rows;
    std::vector<std::vector<int32_t>> local_columns;
    const GroupSide q = {
        o.row,  group.q,          out_.q.rounds, false, out_.shapes.own_rows,
        o.rows, o.first_batch_row};
    const GroupSide kv = {o.column,
                          group.kv,
                          out_.kv.rounds,
                          gathered(),
                          out_.shapes.own_columns,
                          o.columns,
                          o.first_batch_row};
    for (int64_t s = 0; s < seq_; ++s) {
      Buffer rows = make_buffer(q, seq_, s);
      Buffer columns = make_buffer(kv, seq_, s);
      Shard& shard =
          out_.shards[g * static_cast<size_t>(seq_) + static_cast<size_t>(s)];
      fill_lists({plan_, group, options_, lists_}, rows, columns, s, shard);
      local_rows.push_back(std::move(rows.local));
      local_columns.push_back(std::move(columns.local));
    }
    add_sends(group.kv, out_.kv.rounds, seq_, local_columns, out_.kv);
    add_sends(group.q, out_.q.rounds, seq_, local_rows, out_.q);
  }

  Result<void> find_steps() {
    int64_t most = 0;
    for (const Shard& s : out_.shards) {
      most = std::max({most, s.steps, s.steps_transposed});
    }
    const int64_t ceiling = options_.ceilings.steps;
    if (ceiling > 0 && most > ceiling) {
      return over_limit("shard", "a shard may have {} steps, found {}", ceiling,
                        most);
    }
    const auto count = static_cast<int64_t>(out_.shards.size());
    if (ceiling > 0 && ceiling * count > kMaxTiles) {
      return over_limit("shard", "all shards may have {} steps, found {}",
                        kMaxTiles, ceiling * count);
    }
    out_.shapes.steps =
        std::max<int64_t>(1, ceiling > 0 ? ceiling : bucket(most));
    return {};
  }

  const Plan& plan_;
  const Request& request_;
  const ShardOptions& options_;
  const std::vector<RowShards>*
      row_shards_;  // null: the balance assigns rows itself
  const int64_t data_, head_, seq_;
  int64_t lists_ = 0;
  bool tied_ = false;    // columns have the owner of their rows
  int64_t tiles_q_ = 1;  // query tiles that stay together
  std::vector<Owners> owners_;
  std::vector<Group> groups_;
  Shards out_;
};

}  // namespace

std::vector<RowShards> assign_rows(std::span<const Batch* const> batches,
                                   const Mesh& mesh,
                                   const ShardOptions& options) {
  std::vector<const Plan*> plans;
  plans.reserve(batches.size());
  for (const Batch* batch : batches) plans.push_back(&batch->plan());
  const int64_t data = mesh.size("data");
  std::vector<RowShards> out;
  for (int64_t d = 0; d < data; ++d) {
    const Span rows = part_of(plans.front()->batch, data, d);
    const Problem p = make_problem(batches.front()->request(), plans, options,
                                   mesh.size("seq"), rows.begin, rows.size);
    out.push_back(shards_of_rows(p, options.balance));
  }
  return out;
}

namespace {

// A ragged exchange takes its sizes at run time and sends no padding. So for
// one placement it never sends more than rounds or a gather.
ShardOptions for_their_devices(ShardOptions options, const Mesh& mesh) {
  const bool is_open = options.exchange == TileExchange::automatic;
  if (is_open && options.for_tpu && mesh.size("seq") > 1) {
    options.exchange = TileExchange::ragged;
  }
  return options;
}

Result<Shards> make(const Batch& batch, const Mesh& mesh,
                    const ShardOptions& asked,
                    const std::vector<RowShards>* row_shards) {
  const TraceSpan span("shard", "make_shards");
  auto read = plan::read_batch(batch, "shard");
  if (!read) return read.error();
  if (auto e = check_mesh(mesh); !e) return e.error();
  if (auto e = check_options(asked); !e) return e.error();
  const ShardOptions options = for_their_devices(asked, mesh);
  if (auto e = check_fit(batch, mesh, options); !e) return e.error();
  auto contract = plan::contract_of(**read);
  if (!contract) return contract.error();
  return Maker(batch, mesh, options, row_shards).make(*contract);
}

}  // namespace

Result<Shards> make_shards_at(const Batch& batch, const Mesh& mesh,
                              const ShardOptions& options,
                              const std::vector<RowShards>& row_shards) {
  return make(batch, mesh, options, &row_shards);
}

}  // namespace shard

Result<Shards> make_shards(const Batch& batch, const Mesh& mesh,
                           const ShardOptions& options) {
  return shard::make(batch, mesh, options, nullptr);
}

}  // namespace tessera
