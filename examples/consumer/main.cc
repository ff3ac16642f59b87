// examples/consumer/main.cc: plans a row of packed documents.
#include <tessera/tessera.h>

#include <cstdio>
#include <vector>

int main() {
  auto mask = tessera::parse_mask("causal & documents");
  if (!mask) return std::puts(mask.error().message.c_str()), 1;

  // Three documents share a row of 4,096 tokens.
  auto ids = tessera::ids_from_cu_seqlens(
      std::vector<int32_t>{0, 1000, 1500, 4096}, 4096);
  if (!ids) return std::puts(ids.error().message.c_str()), 1;

  tessera::Request request;
  request.masks = {*mask};
  request.q_len = request.kv_len = 4096;
  tessera::Facts facts;
  facts.doc_ids = *ids;
  auto batch = tessera::BorrowedBatch::make(request, facts);
  if (!batch) return std::puts(batch.error().message.c_str()), 1;

  const tessera::Worklist& tiles = batch->plan().forward;
  int full = 0;
  for (tessera::Entry e : tiles.entries)
    full += e.tile_class() == tessera::TileClass::full;
  std::printf("%zu of %lld tiles are active, %d of them full\n",
              tiles.entries.size(),
              static_cast<long long>(tiles.rows * tiles.columns), full);
}
