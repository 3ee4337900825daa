# What each one is for: docs/dependencies.md. `weft_dependencies` is what the library itself needs; none of it shows in the
# public headers. WEFT_MPI_LIBRARIES is for WeftInstall: a static libweft hands its needs on to whoever links it.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
pkg_check_modules(HWY REQUIRED IMPORTED_TARGET libhwy)

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
  find_package(CLI11 REQUIRED)
  pkg_check_modules(OPENBLAS IMPORTED_TARGET openblas)
endif()
if(WEFT_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

configure_file(${PROJECT_SOURCE_DIR}/cmake/version.hpp.in ${PROJECT_BINARY_DIR}/include/weft/version.hpp @ONLY)
