# The program `tessera-bench` and the parts that it shares with `tessera`.
# Everything except main() is a library, so that tests can call it. The program
# counts memory in its own operator new, which no installed target has.
file(GLOB_RECURSE bench_sources CONFIGURE_DEPENDS bench/*.cc)
list(FILTER bench_sources EXCLUDE REGEX "(_test|/main)\\.cc$")
add_library(tessera_bench STATIC ${bench_sources})
target_include_directories(tessera_bench PRIVATE src PUBLIC .)
target_link_libraries(tessera_bench
  PUBLIC tessera_cli PRIVATE tessera_private_deps)
tessera_compile(tessera_bench QUICK)
tessera_unite_folders(tessera_bench bench/kernels)
# The loops that measure the machine's peak are compiled at -O3, as kernels are.
set_source_files_properties(
  bench/harness/peak/loops.cc bench/harness/peak/peak.cc PROPERTIES
  COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>")
# open_rows.cc is a peer, compiled at its fastest: -O3 makes its branches slower.
set_source_files_properties(bench/pack/open_rows.cc PROPERTIES
  COMPILE_OPTIONS "$<$<CONFIG:Release>:-O2>")

add_executable(tessera-bench bench/main.cc)
target_link_libraries(tessera-bench PRIVATE tessera_bench)
tessera_compile(tessera-bench QUICK)
set_target_properties(tessera-bench PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}")
