# Writes OUT, a source file with the commit of the working copy SOURCE: "" outside of git, with "-changed" at its end if files differ from
# the commit. Does not write OUT if it already has this content.
get_filename_component(above ${SOURCE} DIRECTORY)
execute_process(COMMAND ${CMAKE_COMMAND} -E env GIT_CEILING_DIRECTORIES=${above} git -C ${SOURCE} describe --exclude=* --always --abbrev=10 --dirty=-changed
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")
endif()
set(text "namespace ds::cli {\nextern const char* const kCommit;\nconst char* const kCommit = \"${commit}\";\n}\n")
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT "${before}" STREQUAL "${text}")
  file(WRITE ${OUT} "${text}")
endif()
