// tessera/result.h: errors as values. The library never throws on bad input.
#pragma once

#include <string>
#include <utility>
#include <variant>

namespace tessera {

enum class ErrorKind {
  invalid,      // the request, a fact or a file breaks a rule
  limit,        // a ceiling, a budget or a capacity is exceeded
  io,           // the operating system refused
  unavailable,  // this build or machine has no such part
  stopped,      // the caller's stop flag was set
};

// `message` reads "[where] rule, found X for Y".
struct Error {
  ErrorKind kind = ErrorKind::invalid;
  std::string message;
  int column = 0;  // 1-based, in the mask text; 0: no place in a text
};

// A value or an error. value(), * and -> need ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Error& error() const { return std::get<1>(state_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { return error_; }

 private:
  Error error_;
  bool ok_ = true;
};

}  // namespace tessera
