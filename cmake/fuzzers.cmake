# One libFuzzer program per tests/fuzz/<name>_fuzz.cc, built when asked for:
# the target `fuzzers` is all of them.
file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/*_fuzz.cc)
add_custom_target(fuzzers)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL "${source}")
  target_include_directories(${name} PRIVATE src .)
  target_link_libraries(${name} PRIVATE tessera tessera_private_deps
    $<TARGET_NAME_IF_EXISTS:tessera_cli>)
  tessera_compile(${name})
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES
    RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/fuzzers")
  add_dependencies(fuzzers ${name})
endforeach()
