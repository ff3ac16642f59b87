# The component with Apache Arrow C++ (arrow_files/) is a shared object. The library
# loads it at the first Parquet or Arrow file and never links it.
# TESSERA_ARROW_ROOT names the folder with include/ and Arrow's libraries, as in the
# pyarrow wheel, or is OFF. If it is empty, pyarrow of .venv is used if present.
# The names of Arrow's libraries hold the major version; only arrow_major is accepted.
set(TESSERA_ARROW_ROOT "" CACHE STRING
  "The folder with Arrow's include/ and libraries, OFF, or nothing to look in .venv")
file(STRINGS src/data/arrow_component.h arrow_line REGEX "define TESSERA_ARROW_MAJOR")
string(REGEX MATCH "[0-9]+" arrow_major "${arrow_line}")

set_property(SOURCE src/data/arrow_component.cc APPEND PROPERTY
  COMPILE_DEFINITIONS TESSERA_BIN_TO_LIB="${bin_to_lib}")

# Sets arrow_libraries to libarrow and libparquet under `root`. Unsets it if a file
# is missing or the major version differs.
function(tessera_find_arrow root)
  unset(arrow_libraries PARENT_SCOPE)
  set(config "${root}/include/arrow/util/config.h")
  if(NOT EXISTS "${config}")
    return()
  endif()
  file(STRINGS "${config}" line REGEX "define ARROW_VERSION_MAJOR ")
  string(REGEX MATCH "[0-9]+" major "${line}")
  if(NOT major EQUAL arrow_major)
    message(STATUS "Arrow: ${root} has ${major}, not ${arrow_major}")
    return()
  endif()
  foreach(name arrow parquet)
    file(GLOB found "${root}/lib${name}.so.${major}00"
      "${root}/lib/lib${name}.so.${major}00"
      "${root}/lib/*/lib${name}.so.${major}00")
    if(NOT found)
      return()
    endif()
    list(GET found 0 found)
    list(APPEND libraries "${found}")
  endforeach()
  set(arrow_libraries "${libraries}" PARENT_SCOPE)
endfunction()

if(SKBUILD OR TESSERA_SANITIZE STREQUAL "thread")
  message(STATUS "Arrow: no component in a wheel or under the thread sanitizer")
  return()
elseif(TESSERA_ARROW_ROOT)
  get_filename_component(arrow_root "${TESSERA_ARROW_ROOT}" ABSOLUTE
    BASE_DIR "${PROJECT_SOURCE_DIR}")
  tessera_find_arrow("${arrow_root}")
  if(NOT arrow_libraries)
    message(FATAL_ERROR "TESSERA_ARROW_ROOT must be a folder with include/arrow "
      "and libarrow.so.${arrow_major}00, found none in '${arrow_root}'")
  endif()
elseif(TESSERA_ARROW_ROOT STREQUAL "")
  file(GLOB arrow_root
    "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/pyarrow")
  if(arrow_root)
    list(GET arrow_root 0 arrow_root)
    tessera_find_arrow("${arrow_root}")
  endif()
endif()
if(NOT arrow_libraries)
  message(STATUS "Arrow: none of ${arrow_major}, so no Parquet files "
    "(`make tpu` brings it)")
  return()
endif()
message(STATUS "Arrow: the component with ${arrow_root}")

file(GLOB arrow_sources CONFIGURE_DEPENDS arrow_files/*.cc)
list(FILTER arrow_sources EXCLUDE REGEX "_test\\.cc$")
list(GET arrow_libraries 0 arrow_folder)
get_filename_component(arrow_folder "${arrow_folder}" DIRECTORY)
add_library(tessera_arrow MODULE ${arrow_sources})
target_include_directories(tessera_arrow PRIVATE . src include)
target_include_directories(tessera_arrow SYSTEM PRIVATE "${arrow_root}/include")
target_link_libraries(tessera_arrow PRIVATE ${arrow_libraries})
tessera_compile(tessera_arrow QUICK)
if(NOT TESSERA_SANITIZE)  # handles each number of a Parquet file
  set_source_files_properties(arrow_files/list_column.cc PROPERTIES
    COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
endif()
set_target_properties(tessera_arrow PROPERTIES
  PREFIX ""
  LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}"
  CXX_VISIBILITY_PRESET hidden
  INSTALL_RPATH "${arrow_folder}")  # Arrow's libraries are not installed
if(TARGET tessera-cli)
  add_dependencies(tessera-cli tessera_arrow)
endif()
install(TARGETS tessera_arrow LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
  COMPONENT arrow)
