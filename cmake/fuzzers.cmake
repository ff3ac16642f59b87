# One libFuzzer program for each tests/fuzz/<name>_fuzz.cc. The target `fuzzers`
# builds them all; the default target builds none.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "Fuzzers need clang, found ${CMAKE_CXX_COMPILER_ID}")
endif()
# The fuzzers take coverage from the library, the program and the component with
# Arrow. Tests and the fp64 reference are compiled without coverage, which would slow
# down the inner loops of the reference.
foreach(target tessera tessera_seldom tessera_cli tessera_arrow)
  if(TARGET ${target})
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endforeach()
file(GLOB reference_sources src/lanes/reference/*.cc)
set_property(SOURCE ${reference_sources} APPEND PROPERTY
  COMPILE_OPTIONS -fno-sanitize=fuzzer-no-link)
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cc)
if(NOT TARGET tessera_arrow)
  message(STATUS "Fuzzers: without Arrow there is no arrow_files_fuzz")
  list(FILTER fuzz_sources EXCLUDE REGEX "/arrow_files_fuzz\\.cc$")
endif()
add_custom_target(fuzzers)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  target_include_directories(${name} PRIVATE src .)
  target_link_libraries(${name} PRIVATE tessera tessera_private_deps
    $<TARGET_NAME_IF_EXISTS:tessera_cli>)
  tessera_compile(${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzzers")
  add_dependencies(fuzzers ${name})
endforeach()
if(TARGET tessera_arrow)
  target_compile_definitions(arrow_files_fuzz PRIVATE
    TESSERA_ARROW_FILE="$<TARGET_FILE:tessera_arrow>")
  add_dependencies(arrow_files_fuzz tessera_arrow)
endif()
