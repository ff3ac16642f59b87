// pjrt/no_plugin.cc: replaces the files that include the PJRT header, in a
// build without it. No plugin can be loaded there, so no other function here is
// ever reached with one.
#include "base/fail.h"
#include "pjrt/compile.h"
#include "pjrt/execute.h"
#include "pjrt/handlers.h"

namespace tessera::pjrt {
namespace {

Error no_header() {
  return unavailable("pjrt",
                     "this build must have pjrt_c_api.h to load a plugin, "
                     "found none for it (`make tpu` brings it; or give CMake "
                     "its folder as TESSERA_PJRT_HEADER, and build again)");
}

}  // namespace

Result<void> check_available() { return no_header(); }
Result<const Plugin*> load_plugin(const std::string&) { return no_header(); }
Result<const Plugin*> open_plugin(const PluginOptions&) { return no_header(); }

template <>
void Destroyer<PJRT_TopologyDescription>::operator()(
    PJRT_TopologyDescription*) const {}
Result<Topology> make_topology(const Plugin&, const std::string&) {
  return no_header();
}

template <>
void Destroyer<PJRT_Executable>::operator()(PJRT_Executable*) const {}
Result<CompileOptions> options_of(const Topology&, std::string_view) {
  return no_header();
}
Result<Executable> compile(const Topology&, std::string_view,
                           const CompileOptions&) {
  return no_header();
}
Result<std::string> Executable::name() const { return no_header(); }
Result<std::string> Executable::fingerprint() const { return no_header(); }
Result<int64_t> Executable::outputs() const { return no_header(); }
Result<int64_t> Executable::code_bytes() const { return no_header(); }
Result<MemoryStats> Executable::memory() const { return no_header(); }
Result<std::vector<CostProperty>> Executable::cost() const {
  return no_header();
}
Result<std::string> Executable::serialize() const { return no_header(); }

template <>
void Destroyer<PJRT_Event>::operator()(PJRT_Event*) const {}
Result<void> await(const Handle<PJRT_Event>&, std::string_view,
                   std::string_view) {
  return no_header();
}

Result<const Client*> open_client(const Plugin&, const ClientOptions&) {
  return no_header();
}
Result<const Device*> find_device(const Client&, int64_t) {
  return no_header();
}
std::string describe(const Device&) { return {}; }
std::vector<int64_t> Devices::ids() const { return {}; }

Result<void> register_handler(const Client&, const std::string&, void*) {
  return no_header();
}

template <>
void Destroyer<PJRT_Buffer>::operator()(PJRT_Buffer*) const {}
Buffer& Buffer::operator=(Buffer&&) noexcept = default;
Buffer::~Buffer() = default;
Result<Buffer> to_device(const Client&, const Device&, const ArrayType&,
                         const void*, DataStays) {
  return no_header();
}
Result<void> to_host(const Buffer&, void*, int64_t) { return no_header(); }
bool is_gone(const Buffer&) { return true; }

template <>
void Destroyer<PJRT_LoadedExecutable>::operator()(
    PJRT_LoadedExecutable*) const {}
Result<Executable> Loaded::executable() const { return no_header(); }
Result<Loaded> compile(const Client&, const Devices&, std::string_view) {
  return no_header();
}
Result<Loaded> load(const Client&, const Devices&, std::string_view) {
  return no_header();
}
Result<std::vector<Buffer>> execute(const Loaded&,
                                    std::span<const Buffer* const>) {
  return no_header();
}
Result<std::vector<std::vector<Buffer>>> execute_on_all(const Loaded&,
                                                        std::span<const Inputs>,
                                                        Reused) {
  return no_header();
}

}  // namespace tessera::pjrt
