# The header of XLA's foreign functions. Only src/lanes/cpu/ffi_handlers.cc includes
# it: programs of JAX and of PJRT plugins call our kernels through that file. The
# header is all that is used of jaxlib. TESSERA_XLA_FFI names its folder, or is OFF.
# If TESSERA_XLA_FFI is empty, the header is looked for in .venv and, if the Python
# package is built, in that package's Python (cmake/python.cmake). `pip install`
# looks only in the latter, which has the oldest supported jaxlib: a build with a
# newer header does not load in an older jaxlib. Without the header, ffi_handlers()
# returns an error that says how to get it.
set(TESSERA_XLA_FFI "" CACHE STRING
  "The folder that holds xla/ffi/api/ffi.h, OFF, or nothing to look for it")

set_property(SOURCE src/lanes/cpu/ffi_handlers.cc
  PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
set(has_xla_ffi OFF)
function(tessera_use_xla_ffi folder)
  if(has_xla_ffi OR NOT EXISTS "${folder}/xla/ffi/api/ffi.h")
    return()
  endif()
  message(STATUS "XLA: the header of its foreign functions in ${folder}")
  set_source_files_properties(src/lanes/cpu/ffi_handlers.cc PROPERTIES
    COMPILE_DEFINITIONS TESSERA_XLA_FFI
    COMPILE_OPTIONS "-isystem;${folder}")
  set(has_xla_ffi ON PARENT_SCOPE)
endfunction()

if(TESSERA_XLA_FFI)
  tessera_use_xla_ffi("${TESSERA_XLA_FFI}")
elseif(TESSERA_XLA_FFI STREQUAL "" AND NOT TESSERA_BUILD_PYTHON STREQUAL "ON")
  file(GLOB found "${PROJECT_SOURCE_DIR}/.venv/lib/python3*/site-packages/\
jaxlib/include")
  foreach(folder IN LISTS found)
    tessera_use_xla_ffi("${folder}")
  endforeach()
endif()
