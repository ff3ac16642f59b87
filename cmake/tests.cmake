# The tests. thread_tests is apart from unit_tests, so that the thread sanitizer
# has a small program. ctest gets one test per GoogleTest suite: these are fewer and
# faster than one per case, and still named after what is tested.

# Seconds of the tests that take more than 8. ctest starts the longest first, so
# that no long test runs alone at the end. For other tests ctest uses the time of
# their last run.
set(long_tests Plugins/Xla=80 Mosaic.dims=60 Plugins/XlaShards=50 Model=40
  Plugins/XlaSinks=40 Specs/TrainMesh=35 FitCompile=35 Mosaic.forward=70
  Mosaic.float32=35 Mosaic.sessions=35 Mosaic.shipped=22 Specs/Train=30 ShardProgram=30 CpuModel=25
  Mosaic.backward=25 Mosaic.chunks=30 MosaicCompile=30 MosaicMemory=15 MosaicValues=12 Each/SessionLane=20 Bridge.export=20
  Python.jax_hosts=19 GateCommand=15 GateMeasure=12 Each/XlaRouted=15 Cpu=11 Python.jax=11
  Mosaic.telemetry=45 XlaCompile=15 KernelsBench=10 Mosaic.mutate=10 Mosaic.backward_mutants=15
  Mosaic.forward_mutants=9 Mosaic.variant_mutants=15 Mosaic.backward_variant_mutants=30
  ReceiptCommand=9 Python.jax_tpu=9 Python.jax_shards=70 TrainCommand=54 Python.torch=49
  Exchanges/ShardSchedule=38 MosaicLane=37 Mosaic.numbers=29 Meshes/TrainKilled=45
  Python.train=26 TrainCompileOnly=25 Python.notebook=25 Model.jax=25 Python.docs=24
  MeshFitCompile=24 MosaicMesh=23 Mosaic.sinks=23 Cpu/MeshModel=23 KernelStep=21
  ScheduleTpuMemory=15)
# Seconds after which a suite counts as hung. Debug and sanitizer builds get more:
# they are slower and may run all cases.
set(suite_timeout 600)
if(TESSERA_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(suite_timeout 3600)
endif()
function(tessera_test_cost test)
  foreach(one IN LISTS long_tests)
    if(one MATCHES "^(.*)=(.*)$" AND CMAKE_MATCH_1 STREQUAL test)
      set_tests_properties("${test}" PROPERTIES COST ${CMAKE_MATCH_2})
    endif()
  endforeach()
endfunction()

# Fake plugins: each tests/plugins/<name>.cc becomes a library. Tests run in the
# project's folder, so paths are relative, which lets clones share ccache.
set(fake_plugins "${PROJECT_BINARY_DIR}/fake_plugins")
file(RELATIVE_PATH from_here "${PROJECT_SOURCE_DIR}" "${PROJECT_BINARY_DIR}")

# tests/*.cc without _test in the name hold what tests share: oracles, random cases.
file(GLOB support_sources CONFIGURE_DEPENDS tests/*.cc)
list(FILTER support_sources EXCLUDE REGEX "_test\\.cc$")
if(support_sources)
  add_library(test_support STATIC ${support_sources})
  target_include_directories(test_support PRIVATE src PUBLIC .)
  target_link_libraries(test_support PUBLIC tessera tessera_private_deps)
  target_compile_definitions(test_support PRIVATE
    TESSERA_FAKE_PLUGINS="${from_here}/fake_plugins")
  tessera_compile(test_support)
  if(has_isas)
    foreach(isa avx2 avx512)
      tessera_compile_for(${isa} tests/simd_parts_${isa}.cc)
    endforeach()
  endif()
endif()

function(tessera_add_tests target)
  add_executable(${target} ${ARGN})
  target_include_directories(${target} PRIVATE src .)
  target_link_libraries(${target} PRIVATE tessera tessera_private_deps
    GTest::gtest_main Threads::Threads)
  tessera_compile(${target} QUICK)
  tessera_unite(${target} 6)
  tessera_library_first(${target})

  set(program "$<TARGET_FILE:${target}>")
  set(folder "${PROJECT_SOURCE_DIR}")
  set(template "${PROJECT_BINARY_DIR}/${target}_suites.cmake.in")
  set(script "${PROJECT_BINARY_DIR}/${target}_suites.cmake")
  configure_file(cmake/suites.cmake.in "${template}" @ONLY)
  file(GENERATE OUTPUT "${script}" INPUT "${template}")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES "${script}")
endfunction()

file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS src/*_test.cc)
file(GLOB more_tests CONFIGURE_DEPENDS tests/*_test.cc)
list(APPEND test_sources ${more_tests})
if(TARGET tessera_cli)
  file(GLOB_RECURSE more_tests CONFIGURE_DEPENDS cli/*_test.cc)
  list(APPEND test_sources ${more_tests})
  file(GLOB_RECURSE more_tests CONFIGURE_DEPENDS bench/*_test.cc)
  list(APPEND test_sources ${more_tests})
endif()
set(thread_sources ${test_sources})
list(FILTER thread_sources INCLUDE REGEX "threads_test\\.cc$")
list(FILTER test_sources EXCLUDE REGEX "threads_test\\.cc$")

file(GLOB plugin_sources CONFIGURE_DEPENDS tests/plugins/*.cc)
if(pjrt_header)
  foreach(source IN LISTS plugin_sources)
    get_filename_component(name "${source}" NAME_WE)
    add_library(fake_${name} MODULE "${source}")
    target_include_directories(fake_${name} PRIVATE .)
    target_link_libraries(fake_${name} PRIVATE tessera_pjrt_header)
    tessera_compile(fake_${name} QUICK)
    set_target_properties(fake_${name} PROPERTIES
      PREFIX "" OUTPUT_NAME ${name}
      LIBRARY_OUTPUT_DIRECTORY "${fake_plugins}")
    list(APPEND fake_targets fake_${name})
  endforeach()
endif()

if(test_sources)
  tessera_add_tests(unit_tests ${test_sources})
  target_link_libraries(unit_tests PRIVATE
    $<TARGET_NAME_IF_EXISTS:test_support> $<TARGET_NAME_IF_EXISTS:tessera_cli>
    $<TARGET_NAME_IF_EXISTS:tessera_bench>)
  target_compile_definitions(unit_tests PRIVATE
    TESSERA_FAKE_PLUGINS="${from_here}/fake_plugins")
  if(fake_targets)
    add_dependencies(unit_tests ${fake_targets})
  endif()
  # README's C++ example, built as a user's program.
  add_executable(readme_example examples/consumer/train.cc)
  target_link_libraries(readme_example PRIVATE tessera)
  tessera_compile(readme_example QUICK)
  add_dependencies(unit_tests readme_example)
  set_source_files_properties(tests/readme_test.cc PROPERTIES
    COMPILE_DEFINITIONS TESSERA_README_EXAMPLE="${from_here}/readme_example")
  if(TARGET tessera-cli)  # some tests run it
    add_dependencies(unit_tests tessera-cli)
    target_compile_definitions(unit_tests PRIVATE
      TESSERA_PROGRAM="${from_here}/$<TARGET_FILE_NAME:tessera-cli>")
  endif()
endif()
if(thread_sources)
  tessera_add_tests(thread_tests ${thread_sources})
  target_link_libraries(thread_tests PRIVATE
    $<TARGET_NAME_IF_EXISTS:test_support>)
endif()

# A separate program, because its operator new can be made to fail. It compiles the
# file that it tests.
if(TARGET tessera_arrow)
  tessera_add_tests(arrow_tests
    arrow_files/side_by_side.cc arrow_files/side_by_side_test.cc)
  target_include_directories(arrow_tests SYSTEM PRIVATE "${arrow_root}/include")
  target_link_libraries(arrow_tests PRIVATE ${arrow_libraries})
endif()

# Code for one ISA must not leak into the rest of the program.
if(CMAKE_GENERATOR STREQUAL "Ninja" AND NOT TESSERA_SANITIZE)
  add_test(NAME IsaLeaks
    COMMAND dev/isa_leaks "${PROJECT_BINARY_DIR}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
endif()

# The C++ that docs/ shows must compile.
if(NOT TESSERA_SANITIZE)
  add_test(NAME DocsCpp
    COMMAND dev/docs_cpp "${CMAKE_CXX_COMPILER}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
endif()

# Tests in Python; they are skipped if .venv has no jax. Builds with sanitizers
# leave them out, since they would only repeat them. Mosaic: TPU kernels in NumPy.
# Bridge: what JAX exports. Model: training, compared with JAX.
function(tessera_add_python_tests prefix folder)
  file(GLOB python_tests CONFIGURE_DEPENDS tests/${folder}/*_test.py)
  foreach(test IN LISTS python_tests)
    cmake_path(GET test STEM name)
    string(REGEX REPLACE "_test$" "" name "${name}")
    add_test(NAME "${prefix}.${name}"
      COMMAND tests/run_python "${folder}" "${name}"
      WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
    set_tests_properties("${prefix}.${name}" PROPERTIES SKIP_RETURN_CODE 77)
    tessera_test_cost("${prefix}.${name}")
    if(TARGET tessera-cli)
      set_property(TEST "${prefix}.${name}" APPEND PROPERTY
        ENVIRONMENT "TESSERA=$<TARGET_FILE:tessera-cli>")
    endif()
  endforeach()
endfunction()
if(NOT TESSERA_SANITIZE)
  tessera_add_python_tests(Mosaic mosaic)
  if(TARGET tessera-cli)
    tessera_add_python_tests(Bridge bridge)
    tessera_add_python_tests(Model model)
  endif()
endif()
