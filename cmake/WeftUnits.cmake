# A library's sources are compiled a dozen at a time: two thirds of the time that most of them take is reading the same headers
# again. Names in a library's anonymous namespaces have to differ: they meet in one unit. What another option adds has a folder
# of its own, and so units of its own: ccache takes the others from any preset that compiled them (not python/weft, whose folders
# differ). WEFT_SINGLE_SOURCES compiles each by itself, as clang-tidy does, which notices a missing #include.
set(WEFT_SOURCES_PER_UNIT 12)
# In no unit: tests on a GPU in host memory link others in their place (tests/cuda/fake/fake_libraries.cpp), and a linker takes
# or leaves whole objects of an archive.
set(WEFT_REPLACED_SOURCES "/(nccl_open|cublas_library)\\.cpp$")

# weft_few_units(LIBRARY…): the above, of libraries of the folder that calls it.
function(weft_few_units)
  foreach(library ${ARGN})
    if(WEFT_SINGLE_SOURCES)
      continue()
    endif()
    get_target_property(sources ${library} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.cpp$")
    list(FILTER sources EXCLUDE REGEX "${WEFT_REPLACED_SOURCES}")
    set(folders)
    foreach(source ${sources})
      get_filename_component(folder ${source} ABSOLUTE)
      get_filename_component(folder ${folder} DIRECTORY)
      file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} "${folder}/")
      string(MAKE_C_IDENTIFIER "in_${folder}" folder)
      list(APPEND folders ${folder})
      list(APPEND in_${folder} ${source})
    endforeach()
    list(REMOVE_DUPLICATES folders)
    foreach(folder ${folders})
      set(place 0)
      foreach(source ${in_${folder}})
        math(EXPR unit "${place} / ${WEFT_SOURCES_PER_UNIT}")
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}${unit})
        math(EXPR place "${place} + 1")
      endforeach()
      unset(in_${folder})
    endforeach()
    set_target_properties(${library} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    if(TARGET weft_standard_headers)
      target_precompile_headers(${library} REUSE_FROM weft_standard_headers)
    endif()
  endforeach()
endfunction()

# weft_reads_command_line(SOURCE…): sources of which no loop is measured, and which include CLI11, whose templates take half a
# minute to optimise.
function(weft_reads_command_line)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS -O0 SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# Instrumented builds, which nobody shares objects with, precompile the standard headers as well. Nothing of Weft is precompiled,
# since that changes. Precompiled headers need a target, and a target a source.
set(WEFT_STANDARD_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstdio> <cstring>
  <exception> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span>
  <sstream> <stdexcept> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h>
  <nlohmann/json.hpp>)
if(WEFT_SANITIZE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "")
  add_library(weft_standard_headers OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(weft_standard_headers PRIVATE weft_flags fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(weft_standard_headers PRIVATE ${WEFT_STANDARD_HEADERS})
endif()
