// The compiled part of fmt, once for the library, the program and the tests:
// every other file sees declarations alone and compiles in half the time.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// What fmt/format.h declares and leaves to another file.
template auto thousands_sep_impl<char>(locale_ref)
    -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template auto dragonbox::to_decimal(float) noexcept
    -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) noexcept
    -> dragonbox::decimal_fp<double>;

}  // namespace detail
FMT_END_NAMESPACE
