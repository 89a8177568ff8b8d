# At install time: the debug information of each library and of the command moves into a folder .debug beside it, where gdb
# looks, and the file is stripped. An install of single components, as for a package, is stripped by what makes the package.
# Variables: PREFIX, OBJCOPY.
if(CMAKE_INSTALL_COMPONENT)
  return()
endif()
file(GLOB_RECURSE files ${PREFIX}/lib/libds*.so* ${PREFIX}/lib/python3/dist-packages/libds/*.so ${PREFIX}/bin/libds)
foreach(file IN LISTS files)
  cmake_path(GET file PARENT_PATH folder)
  cmake_path(GET file FILENAME name)
  if(IS_SYMLINK ${file} OR folder MATCHES "/\\.debug$")
    continue()
  endif()
  file(MAKE_DIRECTORY ${folder}/.debug)
  execute_process(COMMAND ${OBJCOPY} --only-keep-debug ${file} ${folder}/.debug/${name}.debug COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${OBJCOPY} --strip-unneeded --remove-section=.gnu_debuglink
                          --add-gnu-debuglink=${folder}/.debug/${name}.debug ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
