# The page that draws a plan in a browser: src/picture/page.{html,css,js} become
# one string in a generated source. Run as a script, this file writes that source.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(page_source "${PROJECT_BINARY_DIR}/picture/page.cc")
  set(page_folder "${PROJECT_SOURCE_DIR}/src/picture")
  add_custom_command(OUTPUT "${page_source}"
    COMMAND "${CMAKE_COMMAND}" "-DPAGE=${page_folder}" "-DOUT=${page_source}"
      -P "${CMAKE_CURRENT_LIST_FILE}"
    DEPENDS "${page_folder}/page.html" "${page_folder}/page.css"
      "${page_folder}/page.js" "${CMAKE_CURRENT_LIST_FILE}"
    COMMENT "Putting the page of pictures into a source" VERBATIM)
  list(APPEND lib_sources "${page_source}")
  return()
endif()

foreach(part html css js)
  file(READ "${PAGE}/page.${part}" ${part})
endforeach()
# Replaces `mark`, which must occur once in the page, by `text` on lines of its own.
function(put_part mark text)
  string(FIND "${html}" "${mark}" first)
  string(FIND "${html}" "${mark}" last REVERSE)
  if(first EQUAL -1 OR NOT first EQUAL last)
    message(FATAL_ERROR "page.html must hold ${mark} once")
  endif()
  string(REPLACE "${mark}" "\n${text}" html "${html}")
  set(html "${html}" PARENT_SCOPE)
endfunction()
put_part(@STYLE@ "${css}")
put_part(@SCRIPT@ "${js}")

if(html MATCHES "\\)page\"")
  message(FATAL_ERROR "the page must not end the string that it becomes")
endif()
file(WRITE "${OUT}" "// Made by cmake/page.cmake from src/picture/page.{html,css,js}.
#include \"picture/page.h\"

namespace tessera::picture {

std::string_view page() {
  return R\"page(${html})page\";
}

}  // namespace tessera::picture
")
