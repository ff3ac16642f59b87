# The header of XLA's foreign functions, which src/lanes/cpu/ffi_handlers.cc alone
# sees: programs of JAX and of PJRT plugins call our kernels through it. It comes
# with jaxlib, of which no more is used. TESSERA_XLA_FFI names its folder, or is
# OFF; else it is looked for in .venv, and where the Python package is built, in
# its Python (cmake/python.cmake). There alone for `pip install`, whose jaxlib is
# the oldest supported: what is built with a newer one does not load in it.
# Without it that file says how to get it.
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
