# At install time: moves the debug information of each library and of the command into a folder .debug next to it, where gdb looks, and
# strips the file. It changes only files that this install has written, because the same folders may have other files. When single
# components are installed, as for a package, the packager strips them. Variable: OBJCOPY.
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
