# The Python package (python/). AUTO builds it if .venv has nanobind, so that
# `make test` tests it; `pip install .` sets ON (pyproject.toml).
set(TESSERA_BUILD_PYTHON AUTO CACHE STRING "The Python package: ON, OFF or AUTO")

set(build_python ${TESSERA_BUILD_PYTHON})
if(build_python STREQUAL "AUTO")
  set(build_python OFF)
  set(venv_python "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  if(PROJECT_IS_TOP_LEVEL AND TESSERA_BUILD_TESTS AND NOT TESSERA_SANITIZE AND
      EXISTS "${venv_python}")
    execute_process(
      COMMAND "${venv_python}" -c "import nanobind, nanobind_backend"
      RESULT_VARIABLE lacks_nanobind OUTPUT_QUIET ERROR_QUIET)
    if(lacks_nanobind EQUAL 0)
      set(Python_EXECUTABLE "${venv_python}")
      set(build_python ON)
    endif()
  endif()
endif()

# The tests are added even if the package is not built: each then says that it is
# skipped.
if(TESSERA_BUILD_TESTS AND NOT TESSERA_SANITIZE)
  file(GLOB python_tests CONFIGURE_DEPENDS python/tests/*_test.py)
  foreach(test IN LISTS python_tests)
    cmake_path(GET test STEM name)
    string(REGEX REPLACE "_test$" "" name "${name}")
    add_test(NAME "Python.${name}"
      COMMAND python/run_tests "${PROJECT_BINARY_DIR}" "${name}"
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties("Python.${name}" PROPERTIES SKIP_RETURN_CODE 77)
    tessera_test_cost("Python.${name}")
  endforeach()
endif()

if(build_python)
  set(python_needs Interpreter Development.Module)
  find_package(Python 3.10 COMPONENTS ${python_needs}
    OPTIONAL_COMPONENTS Development.SABIModule)
  if(NOT Python_FOUND AND NOT TESSERA_BUILD_PYTHON STREQUAL "AUTO")
    message(FATAL_ERROR "The Python package needs Python 3.10 with its headers "
      "(Debian: python3-dev)")
  endif()
endif()
if(NOT build_python OR NOT Python_FOUND)
  message(STATUS "Python: the package is not built")
  return()
endif()
execute_process(COMMAND "${Python_EXECUTABLE}" -m nanobind --cmake_dir
  OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE nanobind_ROOT)
find_package(nanobind 3.1 CONFIG REQUIRED)
message(STATUS "Python: the package for ${Python_EXECUTABLE}")

# Split mode: nanobind's code comes from the package nanobind-backend, so one
# stable-ABI library serves Python 3.10 and newer.
file(GLOB python_sources CONFIGURE_DEPENDS python/src/*.cc)
nanobind_add_module(tessera_python BACKEND_MODULE nanobind_backend
  NB_SUPPRESS_WARNINGS ${python_sources})
target_include_directories(tessera_python PRIVATE python/src src)
target_link_libraries(tessera_python PRIVATE tessera tessera_private_deps)
tessera_compile(tessera_python QUICK)
# Symbols of the library are not exported, so two versions can be loaded together.
target_link_options(tessera_python PRIVATE -Wl,--exclude-libs,ALL)

if(NOT has_xla_ffi AND TESSERA_XLA_FFI STREQUAL "")
  execute_process(COMMAND "${Python_EXECUTABLE}" -c
    "import importlib.util as u; print(u.find_spec('jaxlib').submodule_search_locations[0])"
    OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE jaxlib ERROR_QUIET)
  tessera_use_xla_ffi("${jaxlib}/include")
endif()
if(NOT has_xla_ffi)
  message(STATUS "Python: no headers of jaxlib, so no handlers for JAX")
endif()

# The build tree holds the package too: build/python can be a PYTHONPATH.
set(python_tree "${PROJECT_BINARY_DIR}/python/tessera")
set_target_properties(tessera_python PROPERTIES
  OUTPUT_NAME _core LIBRARY_OUTPUT_DIRECTORY "${python_tree}")
file(GLOB python_files CONFIGURE_DEPENDS python/tessera/*)
foreach(file IN LISTS python_files)
  cmake_path(GET file FILENAME name)
  if(NOT name STREQUAL "__pycache__")
    file(MAKE_DIRECTORY "${python_tree}")
    file(CREATE_LINK "${file}" "${python_tree}/${name}" SYMBOLIC)
  endif()
endforeach()

nanobind_add_stub(tessera_python_stub MODULE _core
  OUTPUT "${python_tree}/_core.pyi" PYTHON_PATH "${python_tree}"
  PATTERN_FILE "${PROJECT_SOURCE_DIR}/python/src/stubs.txt"
  DEPENDS tessera_python)

if(TARGET tessera-cli)
  file(CREATE_LINK "${PROJECT_BINARY_DIR}/tessera" "${python_tree}/_program"
    SYMBOLIC)
endif()

if(TARGET tessera_arrow)
  file(CREATE_LINK "${PROJECT_BINARY_DIR}/tessera_arrow.so"
    "${python_tree}/tessera_arrow.so" SYMBOLIC)
endif()

if(SKBUILD)
  install(TARGETS tessera_python LIBRARY DESTINATION tessera COMPONENT python)
  install(FILES "${python_tree}/_core.pyi" DESTINATION tessera
    COMPONENT python)
  install(PROGRAMS $<TARGET_FILE:tessera-cli> DESTINATION tessera
    RENAME _program COMPONENT python)
endif()
