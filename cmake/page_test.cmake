# ds_page_test(PAGE [OPTION...]): adds a test readme.NAME that runs the commands of a page of docs; options are those of
# pages.py.
function(ds_page_test page)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  get_filename_component(name ${page} NAME_WE)
  add_test(NAME readme.${name} COMMAND Python3::Interpreter ${CMAKE_SOURCE_DIR}/tests/readme/pages.py ${CMAKE_SOURCE_DIR}
           ${CMAKE_BINARY_DIR} ${page} ${ARGN})
  set_tests_properties(readme.${name} PROPERTIES TIMEOUT 120)
endfunction()
