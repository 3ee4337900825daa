# weft_module(NAME): one object library of the folder's sources, gathered into `weft` by weft_library().
function(weft_module name)
  set(patterns *.cpp)
  if(WEFT_WITH_CUDA)
    list(APPEND patterns *.cu)
  endif()
  if(name STREQUAL "collectives" OR name STREQUAL "kernels_cuda")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${patterns})
  else()
    file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  endif()
  if(NOT WEFT_WITH_MPI)
    list(FILTER sources EXCLUDE REGEX "/src/collectives/(mpi|hierarchical)/|/src/core/mpi_session")
  endif()
  if(NOT WEFT_WITH_NCCL)
    list(FILTER sources EXCLUDE REGEX "/src/collectives/nccl/")
  endif()
  add_library(weft_${name} OBJECT ${sources})
  target_include_directories(weft_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
    ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(weft_${name} PUBLIC weft_flags weft_dependencies)
  set_property(GLOBAL APPEND PROPERTY WEFT_MODULES weft_${name})
endfunction()

# The library itself: every module's objects.
function(weft_library)
  get_property(modules GLOBAL PROPERTY WEFT_MODULES)
  add_library(weft)
  add_library(weft::weft ALIAS weft)
  foreach(module ${modules})
    target_sources(weft PRIVATE $<TARGET_OBJECTS:${module}>)
  endforeach()
  target_include_directories(weft PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(weft PUBLIC cxx_std_20)
  target_link_libraries(weft PRIVATE $<BUILD_INTERFACE:weft_dependencies>)
  set_target_properties(weft PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()

# weft_program(NAME SOURCES…): a program in bin/ that uses only the public headers.
function(weft_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE weft::weft weft_flags)
endfunction()

# `weft_tests` builds every test program, `cuda_tests` those that need a GPU to run.
if(WEFT_BUILD_TESTS)
  add_custom_target(weft_tests)
  add_custom_target(cuda_tests)
endif()

# weft_test(NAME SOURCES…): a GoogleTest program that may also include src/ and tests/harness.
function(weft_test name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE weft::weft weft_flags weft_dependencies weft_test_harness)
  weft_register_test(${name})
endfunction()

# weft_register_test(NAME): lets ctest run a program. Its folder's name is its label, and "cuda" where its name says so; or
# "fake_cuda", for tests that need CUDA's headers and no GPU. What it reports lands in test-results/, for scripts/count_tests.py.
function(weft_register_test name)
  add_dependencies(weft_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  get_filename_component(labels ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(name MATCHES "fake_cuda")
    set(labels fake_cuda)
  elseif(name MATCHES "cuda" AND NOT labels STREQUAL "cuda")
    list(APPEND labels cuda)
  endif()
  if(labels MATCHES "cuda")
    add_dependencies(cuda_tests ${name})
  endif()
  # Seconds for the program, and for each of its tests; instrumented code is up to 15 times slower.
  if(WEFT_SANITIZE)
    set(limits 1200 480)
  else()
    set(limits 300 120)
  endif()
  list(GET limits 0 program_limit)
  list(GET limits 1 test_limit)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${program_limit} LABELS "${labels}"
    ENVIRONMENT "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/test-results/${name}.xml;WEFT_TEST_LIMIT_S=${test_limit};WEFT_TUNING_CACHE=0")
endfunction()
