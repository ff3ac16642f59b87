# How every target of the project is compiled: C++20, warnings, build type,
# sanitizers, and ccache if installed. No flag here reaches a user's target.

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
  endif()
  # CCACHE names a launcher or is OFF. By default, ccache.sh looks for ccache
  # whenever a file is compiled.
  if(NOT DEFINED CCACHE)
    set(CCACHE sh ${PROJECT_SOURCE_DIR}/cmake/ccache.sh)
  endif()
  if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Paths are relative to the project, so that all clones share the cache.
    set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
  endif()
endif()

set(tessera_flags -Wall -Wextra -Wundef -Wshadow
  # A fused multiply-add rounds once, so results would depend on the compiler.
  -ffp-contract=off)
set(tessera_link_flags)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns wrongly of overlaps in std::string (GCC bug 105651).
  list(APPEND tessera_flags -Wno-restrict)
endif()

set(sanitizers ${TESSERA_SANITIZE})
if(sanitizers)
  list(APPEND tessera_flags -fsanitize=${sanitizers}
    -fno-sanitize-recover=all -fno-omit-frame-pointer -D_GLIBCXX_ASSERTIONS
    -DTESSERA_SANITIZED)
  list(APPEND tessera_link_flags -fsanitize=${sanitizers})
endif()

# Only code that runs often is compiled at -O3: the kernels, the planner and the
# lanes that compute. In a release, the rest is compiled at -O1, which takes two
# thirds of the time: the program and the tests (QUICK), and the library's files
# below (tessera_seldom). Under sanitizers -O0 takes half of the time.
set(tessera_quick $<$<CONFIG:Release>:-O1>)
if(sanitizers)
  set(tessera_quick -O0)
endif()
file(GLOB seldom_sources
  src/audit/*.cc src/fit/*.cc src/model/*.cc src/receipt/*.cc src/pjrt/*.cc
  src/request/*.cc src/run/*.cc src/picture/*.cc src/lanes/jax_bridge/*.cc
  src/lanes/xla/writer*.cc src/lanes/xla/legal.cc src/lanes/xla/block*.cc
  src/lanes/xla/forward.cc src/lanes/xla/backward.cc
  src/lanes/xla/shard_frame.cc src/lanes/xla/shard_program.cc
  src/lanes/mosaic/writer.cc src/lanes/mosaic/parts.cc
  src/lanes/mosaic/program.cc src/lanes/mosaic/pass_loop.cc
  src/lanes/mosaic/forward.cc src/lanes/mosaic/backward*.cc
  src/schedule/compile_dump.cc src/schedule/dump.cc src/schedule/program.cc
  src/base/blob_store.cc src/base/child.cc src/base/fail.cc src/base/files.cc
  src/base/fmt.cc src/base/json_read.cc src/base/npy.cc
  src/base/safetensors.cc src/base/text.cc src/base/trace.cc)

function(tessera_compile target)
  cmake_parse_arguments(PARSE_ARGV 1 arg QUICK "" "")
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_compile_options(${target} PRIVATE ${tessera_flags})
  if(arg_QUICK)
    target_compile_options(${target} PRIVATE ${tessera_quick})
  endif()
  target_link_options(${target} PRIVATE ${tessera_link_flags})
  set_target_properties(${target} PROPERTIES
    CXX_EXTENSIONS OFF
    POSITION_INDEPENDENT_CODE ON)
endfunction()

# Links the library's objects before the program's. Under sanitizers the program's
# objects are at -O0. The linker keeps the first copy of an inline function, so
# this order keeps the library's optimised copies.
function(tessera_library_first target)
  if(TESSERA_SANITIZE)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:tessera>)
  endif()
endfunction()

# OFF compiles each file alone, for tools that work on single files.
option(TESSERA_UNITE "Compile some files at a time" ON)

# Turns on CMake's unity build for a target whose sources have a UNITY_GROUP.
function(tessera_united target)
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${TESSERA_UNITE} UNITY_BUILD_MODE GROUP)
  # CMake includes the files by absolute path. __FILE__ in assertions and tests
  # would put that path into the object, and clones could not share ccache.
  get_target_property(type ${target} TYPE)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release" OR type STREQUAL "EXECUTABLE")
    target_compile_options(${target} PRIVATE
      "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
  endif()
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ takes an included .cc for a header and warns of its local types.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()

# Compiles the files of each folder together, so that shared headers are read once.
# Folders named as further arguments are left out: their files define equal names.
function(tessera_unite_folders target)
  get_target_property(sources ${target} SOURCES)
  foreach(source IN LISTS sources)
    file(RELATIVE_PATH folder "${PROJECT_SOURCE_DIR}" "${source}")
    get_filename_component(folder "${folder}" DIRECTORY)
    if(NOT folder IN_LIST ARGN)
      string(REPLACE "/" "_" folder "${folder}")
      set_property(SOURCE "${source}" PROPERTY UNITY_GROUP ${folder})
    endif()
  endforeach()
  tessera_united(${target})
endfunction()

# The same for files of many folders, AT_A_TIME in a group. The files, sorted by
# namespace, are dealt to the groups in turn. So files of one namespace are in
# different groups, and their internal names cannot clash. Files of `tessera` itself
# come last in a group, since nested namespaces would see their names. CMake compiles
# sources with flags of their own alone. Sources that get flags only if a header is
# present have SKIP_UNITY_BUILD_INCLUSION, so that the groups do not depend on it.
function(tessera_unite target at_a_time)
  get_target_property(sources ${target} SOURCES)
  set(cards)
  set(alone)
  foreach(source IN LISTS sources)
    get_source_file_property(skipped "${source}" SKIP_UNITY_BUILD_INCLUSION)
    if(skipped)
      list(APPEND alone "${source}")
      continue()
    endif()
    set(where)
    # A generated source does not exist at the first configure, and the groups must
    # be the same there. So its namespace is not read.
    cmake_path(IS_PREFIX PROJECT_BINARY_DIR "${source}" written)
    if(NOT written)
      file(STRINGS "${source}" where REGEX "^namespace tessera" LIMIT_COUNT 1)
    endif()
    string(REGEX MATCH "tessera[a-z_:]*" where "${where}")
    list(APPEND cards "in:${where} ${source}")
  endforeach()
  list(SORT cards ORDER DESCENDING)
  list(LENGTH cards count)
  math(EXPR groups "(${count} + ${at_a_time} - 1) / ${at_a_time}")
  set(before)
  foreach(card IN LISTS cards)
    string(REGEX MATCH "^[^ ]*" where "${card}")
    if(NOT where STREQUAL before)
      set(alike 0)
    endif()
    math(EXPR alike "${alike} + 1")
    if(alike GREATER groups)
      set(groups ${alike})
    endif()
    set(before "${where}")
  endforeach()
  set(sources ${alone})
  set(at 0)
  foreach(card IN LISTS cards)
    string(REGEX REPLACE "^[^ ]* " "" source "${card}")
    list(APPEND sources "${source}")
    math(EXPR group "${at} % ${groups}")
    math(EXPR at "${at} + 1")
    set_property(SOURCE "${source}" PROPERTY UNITY_GROUP ${group})
  endforeach()
  set_target_properties(${target} PROPERTIES SOURCES "${sources}")
  tessera_united(${target})
endfunction()
