// cli/route/flags.cc: the router's settings as flags.
#include "cli/route/flags.h"

namespace tessera::cli {

void add_route_flags(Command& command, request::RouteFlags& f) {
  add_flags(
      command, "The router",
      {
          {"--rule", &f.rule, "NAME",
           "Unit that picks: kv-head (the query heads of a KV head together), "
           "query-head, query-tile (the queries of a tile together), or moba "
           "(query-head, one pooled key a block) [kv-head]"},
          {"--compression", &f.compression, "N",
           "Keys pooled to one [128, or the block where that is shorter or "
           "shares less than 16 with 64]"},
          {"--stride", &f.stride, "N",
           "Keys from one compression block to the next [the block where it is "
           "pooled whole, else what it shares with 64]"},
          {"--query-tile", &f.query_tile, "N",
           "Queries that share a union [256]"},
          {"--kv-tile", &f.kv_tile, "N",
           "Keys of a routing tile [1024, or less that the stride divides]"},
          {"--sink-blocks", &f.sink_blocks, "N",
           "First blocks that every query picks, beside its own [0]"},
          {"--hierarchical", &f.hierarchical, "",
           "Score groups of blocks first, then the blocks of the best"},
          {"--meta-ratio", &f.meta_ratio, "N", "Blocks of a group [8]"},
          {"--top-metas", &f.top_metas, "N", "Groups that a query keeps [16]"},
          {"--union-by", &f.union_by, "NAME",
           "bitmap or sort; the results are equal [bitmap]"},
          {"--meaning", &f.meaning, "NAME",
           "Keys that are read: exact (each query attends to its own picks) or "
           "union (to its tile row's) [exact]"},
          {"--strict", &f.strict, "",
           "Refuse an illegal given pick; otherwise it is removed"},
      });
}

}  // namespace tessera::cli
