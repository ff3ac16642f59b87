# Only the files of src/kernels/<op>/ that are named after an ISA are compiled for
# that ISA. Everything in them except the entry points has internal linkage
# (dev/isa_leaks), so other files cannot link to code of that ISA.
set(isa_avx2 -mavx2 -mfma -mf16c)
set(isa_avx512 ${isa_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl)
set(isa_avx512bf16 ${isa_avx512} -mavx512bf16)
set(isa_amx ${isa_avx512bf16} -mamx-tile -mamx-bf16)
# Not an ISA of the project: AVX-512 plus extensions that src/kernels/blocks/
# checks for when it chooses a kernel.
set(isa_avx512vbmi2 ${isa_avx512} -mavx512vbmi2 -mavx512vbmi -mgfni
    -mavx512vpopcntdq)

string(TOLOWER "${CMAKE_SYSTEM_PROCESSOR}" processor)
set(has_isas OFF)
if(processor MATCHES "^(x86_64|amd64)$")
  set(has_isas ON)
endif()
function(tessera_compile_for isa)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS "${isa_${isa}}")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # g++ 12 warns wrongly of _mm512_undefined_ps (GCC bug 105593).
    set_property(SOURCE ${ARGN} APPEND PROPERTY
      COMPILE_OPTIONS -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
endfunction()
foreach(isa avx2 avx512 avx512bf16 amx avx512vbmi2)
  file(GLOB isa_sources CONFIGURE_DEPENDS src/kernels/*/${isa}.cc)
  if(has_isas)
    tessera_compile_for(${isa} ${isa_sources})
  else()
    list(REMOVE_ITEM lib_sources ${isa_sources})
  endif()
endforeach()
