// pjrt/buffer.h: an array in a device's memory, and the way there and back.
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
  // Of what a plugin made. `read` comes about when it needs the caller's data
  // no more; null where there is no such data.
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

// How long the caller's data stays as it is.
enum class DataStays : uint8_t {
  until_freed,  // the buffer: where the plugin can, it is read in place, and
                // else copied at a time of the plugin's choice
  during_call   // the plugin copies it at once
};
Result<Buffer> to_device(const Client& client, const Device& device,
                         const ArrayType& type, const void* data,
                         DataStays stays = DataStays::until_freed);

// Waits until the buffer holds its value, and copies it. `bytes` must be the
// type's size.
Result<void> to_host(const Buffer& buffer, void* data, int64_t bytes);

// Whether a run took its memory: then it holds nothing any more.
bool is_gone(const Buffer& buffer);

// Where data must begin for a plugin that runs on the CPU to read it in place.
inline constexpr int64_t kInPlaceAlignment = 64;

}  // namespace tessera::pjrt
