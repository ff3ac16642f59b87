// base/digest.cc: XXH3, 128 bits. Integers are hashed little-endian.
#include "base/digest.h"

#include <fmt/format.h>

#include <bit>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera {

static_assert(std::endian::native == std::endian::little);

Digest::Digest() : state_(XXH3_createState()) {
  if (!state_) throw std::bad_alloc();
  XXH3_128bits_reset(static_cast<XXH3_state_t*>(state_));
}

Digest::~Digest() { XXH3_freeState(static_cast<XXH3_state_t*>(state_)); }

void Digest::add(const void* bytes, size_t size) {
  if (size == 0) return;
  XXH3_128bits_update(static_cast<XXH3_state_t*>(state_), bytes, size);
}

void Digest::add_text(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  add(text.data(), text.size());
}

std::string Digest::hex() const {
  const XXH128_hash_t h =
      XXH3_128bits_digest(static_cast<XXH3_state_t*>(state_));
  return fmt::format("{:016x}{:016x}", h.high64, h.low64);
}

std::string digest_of(std::string_view bytes) {
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  return digest.hex();
}

}  // namespace tessera
