# weft_fuzz(NAME MODULES…): a fuzz target of NAME.cpp, which defines LLVMFuzzerTestOneInput, and its seeds in corpus/ (the
# folder of its name without "_fuzz"). Everywhere NAME_test, which replays them; with WEFT_FUZZ, which needs clang, also
# NAME itself: a program that scripts/fuzz.sh runs. Of the library it has only the modules named and errors, so that
# little has to be compiled again.
if(WEFT_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "WEFT_FUZZ needs clang, whose libFuzzer it links: cmake --preset fuzz")
  endif()
  add_custom_target(fuzz_targets)
endif()

function(weft_fuzz name)
  string(REPLACE "_fuzz" "" corpus ${name})
  weft_test(${name}_test replay_test.cpp ${name}.cpp)
  target_compile_definitions(${name}_test PRIVATE WEFT_FUZZ_CORPUS="${CMAKE_CURRENT_SOURCE_DIR}/corpus/${corpus}")
  if(NOT WEFT_FUZZ)
    return()
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${name}.cpp ${PROJECT_SOURCE_DIR}/src/core/error.cpp)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
    ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE weft_flags weft_dependencies)
  foreach(module ${ARGN})
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:weft_${module}>)
  endforeach()
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  add_dependencies(fuzz_targets ${name})
endfunction()
