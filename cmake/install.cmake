# cmake --install: header, library, command, Python package, CMake package (find_package(ds) gives ds::ds), pkg-config file, documentation
# and examples. `ninja installed` builds all of this. separate_debug.cmake, which is included last, strips the files.
include(CMakePackageConfigHelpers)

if(TARGET ds)
  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ds)
  install(FILES ${CMAKE_SOURCE_DIR}/include/ds.h ${CMAKE_SOURCE_DIR}/include/ds_ops.h ${CMAKE_SOURCE_DIR}/include/ds_plugin.h
          ${CMAKE_SOURCE_DIR}/bindings/libtorch/ds_torch.h
          DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS ds EXPORT dsTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT dsTargets NAMESPACE ds:: DESTINATION ${package_dir})

  configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/dsConfig.cmake.in ${CMAKE_BINARY_DIR}/dsConfig.cmake
                                INSTALL_DESTINATION ${package_dir})
  # Before 1.0, a minor version may be incompatible.
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/dsConfigVersion.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/dsConfig.cmake ${CMAKE_BINARY_DIR}/dsConfigVersion.cmake DESTINATION ${package_dir})

  file(RELATIVE_PATH DS_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/ds.pc.in ${CMAKE_BINARY_DIR}/ds.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/ds.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  # Links between the pages and to the examples stay valid; links to files that are not installed become plain words.
  set(doc_dir ${CMAKE_INSTALL_DATADIR}/doc/libds)
  install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md ${CMAKE_SOURCE_DIR}/CHANGELOG.md DESTINATION ${doc_dir})
  install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs ${CMAKE_SOURCE_DIR}/examples DESTINATION ${doc_dir}
          REGEX "/examples/CMakeLists[.]txt$" EXCLUDE PATTERN conf.py EXCLUDE PATTERN static EXCLUDE)
  install(CODE "set(DOC_DIR \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${doc_dir}\")")
  install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/installed_docs.cmake)
endif()
foreach(plugin ds_text ds_mpi ds_tcp ds_cuda)
  if(TARGET ${plugin})
    install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT ${plugin})
  endif()
endforeach()
if(TARGET libds)
  file(RELATIVE_PATH lib_of_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(libds PROPERTIES INSTALL_RPATH "$ORIGIN/${lib_of_bin}")
  install(TARGETS libds RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
add_custom_target(installed)
foreach(part ds libds ds_text ds_mpi ds_tcp ds_cuda)
  if(TARGET ${part})
    add_dependencies(installed ${part})
  endif()
endforeach()
