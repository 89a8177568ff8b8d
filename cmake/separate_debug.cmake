# At install time: the debug information of each library and of the command moves into a folder .debug beside it, where gdb
# looks, and the file is stripped. Only what this install has written is touched: other files may lie in the same folders. An
# install of single components, as for a package, is stripped by what makes the package. Variable: OBJCOPY.
if(CMAKE_INSTALL_COMPONENT)
  return()
endif()
foreach(installed IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
  set(file $ENV{DESTDIR}${installed})
  if(IS_SYMLINK ${file} OR NOT file MATCHES "\\.so[.0-9]*$|/bin/libds$")
    continue()
  endif()
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file FILENAME name)
  file(MAKE_DIRECTORY ${folder}/.debug)
  execute_process(COMMAND ${OBJCOPY} --only-keep-debug ${file} ${folder}/.debug/${name}.debug COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${OBJCOPY} --strip-unneeded --remove-section=.gnu_debuglink
                          --add-gnu-debuglink=${folder}/.debug/${name}.debug ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
