# weft_module(NAME [folder's *.cpp]): one object library per folder, gathered into `weft` by weft_library().
function(weft_module name)
  file(GLOB sources CONFIGURE_DEPENDS *.cpp)
  if(name STREQUAL "collectives")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS *.cpp)
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
  set_target_properties(weft PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
endfunction()

# weft_program(NAME SOURCES…): a program in bin/ that uses only the public headers.
function(weft_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE weft::weft weft_flags)
endfunction()

# weft_test(NAME SOURCES…): a GoogleTest program that may also include src/ and tests/harness.
function(weft_test name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE weft::weft weft_flags weft_dependencies weft_test_harness)
  target_precompile_headers(${name} PRIVATE <gtest/gtest.h>)
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()
