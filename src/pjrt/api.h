// pjrt/api.h: all calls to a plugin go through here. Private to src/pjrt: this
// file includes the vendor's header.
//
// A plugin may be older or newer than that header. The function table and every
// struct that a plugin returns state their size. What an older plugin lacks
// lies past that size, and nothing past it is read. A newer plugin sees from
// the sizes of our structs which members we know.
#pragma once

#include <pjrt_c_api.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/fail.h"
#include "pjrt/plugin.h"

namespace tessera::pjrt {

// Whether `member` of `at` lies within the size that the struct states.
template <class Struct, class Member>
bool reaches(const Struct& at, Member Struct::*member) {
  const auto offset =
      static_cast<size_t>(reinterpret_cast<const char*>(&(at.*member)) -
                          reinterpret_cast<const char*>(&at));
  return offset + sizeof(Member) <= at.struct_size;
}

// A copy of a plugin's text, which may be null.
inline std::string text_of(const char* text, size_t size) {
  return text ? std::string(text, size) : std::string();
}

// Null where the plugin has no such function.
template <class Function>
Function* function_of(const PJRT_Api& api, Function* PJRT_Api::*member) {
  return reaches(api, member) ? api.*member : nullptr;
}

// Converts and frees the error, which is not null.
Error take_error(const PJRT_Api& api, PJRT_Error* error, std::string_view rule,
                 std::string_view subject);

// A program in MLIR, as text or bytecode. The result views `code`, which the
// plugin only reads, though its type has no const.
inline PJRT_Program mlir_program(std::string& code) {
  static constexpr std::string_view kMlir = "mlir";
  PJRT_Program out = {};
  out.struct_size = PJRT_Program_STRUCT_SIZE;
  out.code = code.data();
  out.code_size = code.size();
  out.format = kMlir.data();
  out.format_size = kMlir.size();
  return out;
}

// How an error of a call reads: "[pjrt] <rule>, found ... for <subject>".
struct Purpose {
  std::string_view rule;
  std::string_view subject;
};

// Fills in struct_size and calls; use TESSERA_PJRT_CALL.
template <class Args>
Result<void> call(const PJRT_Api& api, PJRT_Error* (*PJRT_Api::*member)(Args*),
                  std::string_view name, size_t struct_size, Args& args,
                  const Purpose& purpose) {
  auto* function = function_of(api, member);
  if (!function) {
    return unavailable("pjrt", "{}, found a plugin without {} for {}",
                       purpose.rule, name, purpose.subject);
  }
  args.struct_size = struct_size;
  if (PJRT_Error* error = function(&args)) {
    return take_error(api, error, purpose.rule, purpose.subject);
  }
  return {};
}

// A macro because the size is a constant that is named after the function, and
// not sizeof, which counts padding that a newer plugin may use.
#define TESSERA_PJRT_CALL(plugin, name, args, ...)               \
  ::tessera::pjrt::call(*(plugin).api(), &PJRT_Api::name, #name, \
                        size_t{name##_Args_STRUCT_SIZE}, args, __VA_ARGS__)

}  // namespace tessera::pjrt
