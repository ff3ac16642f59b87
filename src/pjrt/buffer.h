// pjrt/buffer.h: an array in a device's memory, and copies to and from it.
#pragma once

#include <cstdint>
#include <utility>

#include "pjrt/array_type.h"
#include "pjrt/client.h"
#include "pjrt/event.h"
#include "pjrt/handle.h"

struct PJRT_Buffer;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_Buffer>::operator()(PJRT_Buffer* object) const;

class Buffer {
 public:
  // Owns a buffer that a plugin made. `read` completes when the plugin no
  // longer needs the caller's data; null: there is no such data.
  Buffer(ArrayType type, const Device& device, Handle<PJRT_Buffer> handle,
         Handle<PJRT_Event> read = {})
      : type_(std::move(type)),
        device_(device.handle),
        read_(std::move(read)),
        handle_(std::move(handle)) {}
  Buffer(Buffer&&) = default;
  Buffer& operator=(Buffer&& from) noexcept;
  ~Buffer();

  const ArrayType& type() const { return type_; }
  const Plugin& plugin() const { return *handle_.get_deleter().plugin; }
  PJRT_Device* device() const { return device_; }
  PJRT_Buffer* handle() const { return handle_.get(); }

 private:
  void release();

  ArrayType type_;
  PJRT_Device* device_;
  Handle<PJRT_Event> read_;
  Handle<PJRT_Buffer> handle_;
};

// How long the caller keeps the data unchanged.
enum class DataStays : uint8_t {
  until_freed,  // until the buffer is freed; the plugin reads the data in place
                // if it can, else copies it at a time of its choice
  during_call   // only during the call; the plugin copies the data at once
};
Result<Buffer> to_device(const Client& client, const Device& device,
                         const ArrayType& type, const void* data,
                         DataStays stays = DataStays::until_freed);

// Waits until the buffer holds its value, and copies it. `bytes` must be the
// type's size.
Result<void> to_host(const Buffer& buffer, void* data, int64_t bytes);

// Whether a run took the buffer's memory, so that it holds no value any more.
bool is_gone(const Buffer& buffer);

// The alignment of data that a plugin on the CPU can read in place.
inline constexpr int64_t kInPlaceAlignment = 64;

}  // namespace tessera::pjrt
