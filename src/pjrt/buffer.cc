// pjrt/buffer.cc: copies arrays to a device and back.
#include "pjrt/buffer.h"

#include <iterator>
#include <numeric>

#include "base/trace.h"
#include "pjrt/api.h"
#include "pjrt/element_type.h"
#include "pjrt/memory_check.h"

namespace tessera::pjrt {
namespace {

// In the order of Dtype.
constexpr PJRT_Buffer_Type kTypes[] = {
    PJRT_Buffer_Type_S32,  PJRT_Buffer_Type_S64, PJRT_Buffer_Type_F16,
    PJRT_Buffer_Type_BF16, PJRT_Buffer_Type_F32, PJRT_Buffer_Type_F64,
    PJRT_Buffer_Type_S8,   PJRT_Buffer_Type_S16, PJRT_Buffer_Type_U8,
    PJRT_Buffer_Type_PRED};

// The data of an array without bytes: some plugins take null for a query.
char no_bytes[kInPlaceAlignment];

}  // namespace

PJRT_Buffer_Type element_type(Dtype dtype) {
  return kTypes[static_cast<size_t>(dtype)];
}

std::optional<Dtype> dtype_of(int type) {
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    if (kTypes[i] == type) return static_cast<Dtype>(i);
  }
  return {};
}

template <>
void Destroyer<PJRT_Buffer>::operator()(PJRT_Buffer* object) const {
  PJRT_Buffer_Destroy_Args args = {};
  args.buffer = object;
  (void)TESSERA_PJRT_CALL(*plugin, PJRT_Buffer_Destroy, args,
                          Purpose{"a buffer must be freed", "it"});
}

Buffer& Buffer::operator=(Buffer&& from) noexcept {
  release();
  type_ = std::move(from.type_);
  device_ = from.device_;
  read_ = std::move(from.read_);
  handle_ = std::move(from.handle_);
  return *this;
}

Buffer::~Buffer() { release(); }

void Buffer::release() {
  handle_.reset();
  // The plugin may still be reading the data on another thread.
  (void)await(read_, "data must be read", "it");
  read_.reset();
}

// kImmutableZeroCopy works with every plugin. A plugin on the CPU reads aligned
// data in place, and `done_with_host_buffer` completes when the buffer is
// freed. Others copy, now or later, and complete it after the copy. So
// release() waits for it, and not this function, where the wait could be
// endless.
Result<Buffer> to_device(const Client& client, const Device& device,
                         const ArrayType& type, const void* data,
                         DataStays stays) {
  TraceSpan span("pjrt", "to_device");
  auto bytes = byte_size(type);
  if (!bytes) return bytes.error();
  span.note("bytes", *bytes);
  const Plugin& plugin = client.plugin();
  const std::string subject =
      fmt::format("{} on {}", describe(type), describe(device));
  if (!data && *bytes > 0) {
    return invalid("pjrt", "an array must have data, found none for {}",
                   subject);
  }
  const bool in_place =
      stays == DataStays::until_freed &&
      reinterpret_cast<uintptr_t>(data) % kInPlaceAlignment == 0;
  if (auto ok = check_memory(client, in_place ? 0 : *bytes,
                             "the copy of an array must fit in memory");
      !ok) {
    return ok.error();
  }
  const Purpose purpose = {"an array must reach its device", subject};
  PJRT_Client_BufferFromHostBuffer_Args args = {};
  args.client = client.handle();
  args.data = *bytes > 0 ? data : no_bytes;
  args.type = element_type(type.dtype);
  args.dims = type.dims.data();
  args.num_dims = type.dims.size();
  args.host_buffer_semantics =
      stays == DataStays::until_freed
          ? PJRT_HostBufferSemantics_kImmutableZeroCopy
          : PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = device.handle;
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_Client_BufferFromHostBuffer, args,
                              purpose);
  if (!ok) return ok.error();
  Buffer out(type, device, {args.buffer, {&plugin}},
             {args.done_with_host_buffer, {&plugin}});
  if (!args.buffer) {
    return invalid("pjrt", "{}, found nothing for {}", purpose.rule, subject);
  }
  return out;
}

Result<void> to_host(const Buffer& buffer, void* data, int64_t bytes) {
  TraceSpan span("pjrt", "to_host");
  span.note("bytes", bytes);
  const ArrayType& type = buffer.type();
  const std::string subject = describe(type);
  auto size = byte_size(type);
  if (!size) return size.error();
  if (bytes != *size || (!data && bytes > 0)) {
    return invalid("pjrt",
                   "an array must have room for {} bytes, found {} "
                   "for {}",
                   *size, data || bytes == 0 ? bytes : 0, subject);
  }
  const Purpose purpose = {"an array must come from its device", subject};
  const Plugin& plugin = buffer.plugin();
  // Row-major order; without a layout the device's own order would be copied.
  std::vector<int64_t> order(type.dims.size());
  std::iota(order.rbegin(), order.rend(), int64_t{0});
  PJRT_Buffer_MemoryLayout layout = {};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = order.data();
  layout.tiled.minor_to_major_size = order.size();
  PJRT_Buffer_ToHostBuffer_Args args = {};
  args.src = buffer.handle();
  args.host_layout = type.dims.size() > 1 ? &layout : nullptr;
  args.dst = bytes > 0 ? data : no_bytes;
  args.dst_size = bytes > 0 ? static_cast<size_t>(bytes) : sizeof no_bytes;
  auto ok = TESSERA_PJRT_CALL(plugin, PJRT_Buffer_ToHostBuffer, args, purpose);
  if (!ok) return ok;
  return await({args.event, {&plugin}}, purpose.rule, purpose.subject);
}

bool is_gone(const Buffer& buffer) {
  PJRT_Buffer_IsDeleted_Args args = {};
  args.buffer = buffer.handle();
  auto told =
      TESSERA_PJRT_CALL(buffer.plugin(), PJRT_Buffer_IsDeleted, args,
                        Purpose{"a buffer must say whether it is there", "it"});
  return !told || args.is_deleted;
}

}  // namespace tessera::pjrt
