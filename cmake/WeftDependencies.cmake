# What each one is for: docs/dependencies.md. `weft_dependencies` is what the library itself needs; none of it shows in the
# public headers. WEFT_MPI_LIBRARIES is for WeftInstall: a static libweft hands its needs on to whoever links it.
find_package(Threads REQUIRED)
find_package(PkgConfig QUIET)
find_package(fmt QUIET)
find_package(spdlog QUIET)
find_package(nlohmann_json QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(HWLOC QUIET IMPORTED_TARGET hwloc)
  pkg_check_modules(HWY QUIET IMPORTED_TARGET libhwy)
endif()

set(needs PkgConfig:pkg-config fmt:libfmt-dev spdlog:libspdlog-dev nlohmann_json:nlohmann-json3-dev HWLOC:libhwloc-dev
  HWY:libhwy-dev)
if(WEFT_BUILD_PROGRAMS OR WEFT_BUILD_TOOLS)
  find_package(CLI11 QUIET)
  list(APPEND needs CLI11:libcli11-dev)
endif()

# All that is missing at once, by the name it is installed under: pip's users see nothing else of this build.
set(missing "")
foreach(need ${needs})
  string(REGEX MATCH "^([^:]+):(.+)$" matched ${need})
  if(NOT ${CMAKE_MATCH_1}_FOUND)
    string(APPEND missing " ${CMAKE_MATCH_2}")
  endif()
endforeach()
if(missing)
  message(FATAL_ERROR "Weft needs libraries that are not installed. On Debian and Ubuntu: apt-get install${missing}")
endif()

add_library(weft_dependencies INTERFACE)
target_link_libraries(weft_dependencies INTERFACE Threads::Threads fmt::fmt spdlog::spdlog
  nlohmann_json::nlohmann_json PkgConfig::HWLOC PkgConfig::HWY)
if(WEFT_WITH_MPI)
  find_package(MPI REQUIRED COMPONENTS C)
  target_link_libraries(weft_dependencies INTERFACE MPI::MPI_C)
  target_compile_definitions(weft_dependencies INTERFACE WEFT_WITH_MPI=1 OMPI_SKIP_MPICXX=1)
endif()
if(WEFT_WITH_CUDA)
  find_package(CUDAToolkit REQUIRED)
  target_link_libraries(weft_dependencies INTERFACE CUDA::cudart)
  target_compile_definitions(weft_dependencies INTERFACE WEFT_WITH_CUDA=1)
endif()

if(WEFT_BUILD_PROGRAMS)
  pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
endif()
if(WEFT_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

configure_file(${PROJECT_SOURCE_DIR}/cmake/version.hpp.in ${PROJECT_BINARY_DIR}/include/weft/version.hpp @ONLY)
