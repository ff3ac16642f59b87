// run/kernel_tile.h: the tile that suits a kernel, for requests that name none.
#pragma once

#include <functional>
#include <string>

#include "request/load.h"
#include "tessera/attention.h"
#include "tessera/machine.h"
#include "tessera/session.h"

namespace tessera::run {

// The target of the session's named lane, "v6e:1x1". Empty if the lane does not
// start (a later run reports that error) or its device is not a known TPU.
std::string target_here(const Session& session);
// The target of a machine's plugin; empty if its chip is not known.
std::string target_of(const Machine& machine, const std::string& plugin);

// Who chose the tile; "" if the tile was not open.
using TileBy = std::string;

// Whether the request leaves its tile open. A saved plan and picks that are to
// be routed are tied to the tile they have.
bool is_tile_open(const request::Loaded& loaded);

// Sets the tile of a request that is not planned yet and leaves its tile open.
// The tile is that of the TPU kernels' table, by the mean number of keys a
// query sees, for backward if the call has that pass; a smaller one if kernels
// of these options would exceed the vector memory of the target, "v6e:1x1".
Result<TileBy> take_kernel_tile(const AttentionCall& call,
                                const std::string& target,
                                const XlaOptions& options,
                                request::Loaded& loaded);

// The same tile for a batch that is already planned at some other tile.
struct KernelTile {
  Tile tile;
  TileBy by;
};
KernelTile kernel_tile(const Batch& batch, const AttentionCall& call,
                       const std::string& target, const XlaOptions& options);

// Chooses the lane of a batch; target and options of that choice's kernels.
struct LaneChooser {
  std::function<Result<Choice>(const Batch&)> choose;
  std::function<std::string(const Choice&)> target;
  XlaOptions options = {};
};
// The chooser of a session; the session must outlive it.
LaneChooser chooser_of(const Session& session, const AttentionCall& call);

// The choice for a batch. If its tile is open and the choice is lane mosaic,
// the batch is planned again at the tile of the lane's kernels and a lane is
// chosen again; if that gives another lane, batch and choice stay as they were.
struct TiledChoice {
  Choice choice;
  TileBy tile_by;
};
Result<TiledChoice> choose_and_tile(const LaneChooser& chooser,
                                    const AttentionCall& call, bool open_tile,
                                    OwnedBatch& batch);

}  // namespace tessera::run
