# The libraries that the build needs, with the oldest tested versions: those of
# Debian 12. dev/packages.txt lists the same as Debian packages.
set(missing "")

# Finds a CMake package, or adds its Debian package to `missing`.
macro(tessera_need name version debian_package)
  find_package(${name} ${version} QUIET)
  if(NOT ${name}_FOUND)
    string(APPEND missing "\n  ${name} ${version} (${debian_package})")
  endif()
endmacro()

tessera_need(fmt 9.1 libfmt-dev)
tessera_need(nlohmann_json 3.11 nlohmann-json3-dev)
find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(XXHASH_INCLUDE_DIR)
  file(STRINGS "${XXHASH_INCLUDE_DIR}/xxhash.h" xxhash_lines
    REGEX "define XXH_VERSION_(MAJOR|MINOR)")
  string(REGEX MATCHALL "[0-9]+" xxhash_version "${xxhash_lines}")
  list(JOIN xxhash_version "." xxhash_version)
endif()
if(NOT XXHASH_INCLUDE_DIR OR xxhash_version VERSION_LESS 0.8)
  string(APPEND missing "\n  xxhash.h 0.8 (libxxhash-dev)")
endif()
if(TESSERA_BUILD_CLI)
  tessera_need(CLI11 2.1 libcli11-dev)
endif()
if(TESSERA_BUILD_TESTS)
  tessera_need(GTest 1.12 libgtest-dev)
endif()
find_package(Threads REQUIRED)

if(missing)
  message(FATAL_ERROR "Missing, with the Debian packages that hold them:"
    "${missing}\nOn Debian 12, dev/setup installs them.")
endif()

# The library's sources use these dependencies as headers only. The compiled part
# of fmt is src/base/fmt.cc. fmt gets a namespace of our own, so that a program that
# also uses libfmt has two copies whose symbols do not clash.
add_library(tessera_private_deps INTERFACE)
target_include_directories(tessera_private_deps SYSTEM INTERFACE
  "${XXHASH_INCLUDE_DIR}"
  $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(tessera_private_deps INTERFACE
  "FMT_BEGIN_NAMESPACE=namespace fmt { inline namespace tessera_own {"
  "FMT_END_NAMESPACE=} }")
target_link_libraries(tessera_private_deps
  INTERFACE nlohmann_json::nlohmann_json)
