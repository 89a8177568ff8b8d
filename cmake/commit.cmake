# Writes OUT, a source file with the commit of the working copy SOURCE: "" outside of git, with "-changed" at its end when
# files differ from it. Leaves OUT alone when it says so already.
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
