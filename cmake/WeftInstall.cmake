# cmake --install: headers, the library, find_package(weft) and pkg-config files.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp"
  PATTERN "cuda*.hpp" EXCLUDE)
if(WEFT_WITH_CUDA)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "cuda*.hpp")
endif()
install(FILES ${PROJECT_BINARY_DIR}/include/weft/version.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
install(TARGETS weft EXPORT weftTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})

set(weft_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
install(EXPORT weftTargets NAMESPACE weft:: DESTINATION ${weft_cmake_dir})

# A shared libweft carries its needs inside; a static one has to name them. The MPI library is named by path: the archive was
# compiled against that very MPI's ABI, so finding another one would be a mistake.
get_target_property(weft_type weft TYPE)
set(WEFT_IS_STATIC OFF)
set(WEFT_MPI_LINK "")
set(WEFT_PC_REQUIRES_FIELD "Requires.private")
set(WEFT_PC_LIBS_PRIVATE "-pthread")
if(weft_type STREQUAL "STATIC_LIBRARY")
  set(WEFT_IS_STATIC ON)
  set(WEFT_PC_REQUIRES_FIELD "Requires")
endif()
if(WEFT_WITH_MPI)
  set(WEFT_MPI_LINK ${MPI_C_LIBRARIES})
  list(JOIN MPI_C_LIBRARIES " " mpi_libraries)
  string(APPEND WEFT_PC_LIBS_PRIVATE " ${mpi_libraries}")
endif()
if(WEFT_WITH_CUDA)
  string(APPEND WEFT_PC_LIBS_PRIVATE " -L${CUDAToolkit_LIBRARY_DIR} -lcudart")
endif()
if(WEFT_IS_STATIC)
  set(WEFT_PC_LIBS "-lweft ${WEFT_PC_LIBS_PRIVATE}")
  set(WEFT_PC_LIBS_PRIVATE "")
else()
  set(WEFT_PC_LIBS "-lweft")
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weftConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/weftConfig.cmake
  INSTALL_DESTINATION ${weft_cmake_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/weftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/weftConfig.cmake ${PROJECT_BINARY_DIR}/cmake/weftConfigVersion.cmake
  DESTINATION ${weft_cmake_dir})

# Relative to the file itself, so that the installed tree may be moved (and a distribution's lib/TRIPLET works).
file(RELATIVE_PATH WEFT_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/cmake/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
