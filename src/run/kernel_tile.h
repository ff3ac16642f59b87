// run/kernel_tile.h: a tile that suits a kernel, where nobody said one.
#pragma once

#include <functional>
#include <string>

#include "request/load.h"
#include "tessera/attention.h"
#include "tessera/machine.h"
#include "tessera/session.h"

namespace tessera::run {

// What the session's named lane makes its kernels for, "v6e:1x1"; empty where
// it does not start, which is told when it is to run.
std::string target_here(const Session& session);
// The same of a machine's plugin; empty where its chip is not known.
std::string target_of(const Machine& machine, const std::string& plugin);

// Who chose the tile; "" where it was not open.
using TileBy = std::string;

// Nobody said one: a saved plan has its own, and picks are routed to theirs.
bool is_tile_open(const request::Loaded& loaded);

// Of a request that is not planned yet and leaves its tile open: that of the
// TPU kernels' table, for the keys that its own queries see in the mean, and
// for backward where the call has such a pass, as far as the vector memory of
// the target, "v6e:1x1", holds it, by kernels of these options.
Result<TileBy> take_kernel_tile(const AttentionCall& call,
                                const std::string& target,
                                const XlaOptions& options,
                                request::Loaded& loaded);

// The same of a batch, which is planned at another.
struct KernelTile {
  Tile tile;
  TileBy by;
};
KernelTile kernel_tile(const Batch& batch, const AttentionCall& call,
                       const std::string& target, const XlaOptions& options);

// Who chooses a batch's lane, and what kernels of that choice are made for,
// with which options.
struct LaneChooser {
  std::function<Result<Choice>(const Batch&)> choose;
  std::function<std::string(const Choice&)> target;
  XlaOptions options = {};
};
// A session's, which must outlive it.
LaneChooser chooser_of(const Session& session, const AttentionCall& call);

// What was chosen for a batch. Where its tile is open and the choice is lane
// mosaic, the batch is planned again at the tile of its kernels, and chosen
// for again; it stays as it was where that would be another lane.
struct TiledChoice {
  Choice choice;
  TileBy tile_by;
};
Result<TiledChoice> choose_and_tile(const LaneChooser& chooser,
                                    const AttentionCall& call, bool open_tile,
                                    OwnedBatch& batch);

}  // namespace tessera::run
