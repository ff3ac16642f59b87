# The header of the PJRT C API. Only src/pjrt/ includes it, so no other file is
# rebuilt when the header is installed. TESSERA_PJRT_HEADER names its folder, or is
# OFF. If it is empty, the header is looked for where `make tpu` puts it. Without the
# header the library has src/pjrt/no_plugin.cc, whose error says how to get it.
set(TESSERA_PJRT_HEADER "" CACHE STRING
  "The folder that holds pjrt_c_api.h, OFF, or nothing to look in .venv")

set(pjrt_header "")
if(TESSERA_PJRT_HEADER)
  get_filename_component(pjrt_header "${TESSERA_PJRT_HEADER}" ABSOLUTE
    BASE_DIR "${PROJECT_SOURCE_DIR}")
  if(NOT EXISTS "${pjrt_header}/pjrt_c_api.h")
    message(FATAL_ERROR "TESSERA_PJRT_HEADER must be a folder with "
      "pjrt_c_api.h, found none in '${pjrt_header}'")
  endif()
elseif(TESSERA_PJRT_HEADER STREQUAL "")
  file(GLOB found "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/\
xla_plugins/xla_cpu_pjrt/include/pjrt_c_api.h")
  if(found)
    list(GET found 0 found)
    get_filename_component(pjrt_header "${found}" DIRECTORY)
  endif()
endif()

file(GLOB pjrt_sources src/pjrt/*.cc)
list(FILTER pjrt_sources EXCLUDE REGEX "_test\\.cc$")
set_property(SOURCE ${pjrt_sources} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)

add_library(tessera_pjrt_header INTERFACE)
if(pjrt_header)
  message(STATUS "PJRT: the header in ${pjrt_header}")
  target_include_directories(tessera_pjrt_header SYSTEM
    INTERFACE "${pjrt_header}")
  list(FILTER lib_sources EXCLUDE REGEX "/src/pjrt/no_plugin\\.cc$")
  set_property(SOURCE ${pjrt_sources} APPEND PROPERTY
    COMPILE_OPTIONS -isystem "${pjrt_header}")
else()
  message(STATUS "PJRT: no header, so no plugins (`make tpu` brings it)")
  list(FILTER lib_sources EXCLUDE REGEX
    "/src/pjrt/(plugin|topology|compile|event|client|buffer|execute|handlers)\\.cc$")
endif()
