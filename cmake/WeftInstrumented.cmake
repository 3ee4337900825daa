# Instrumented builds compile a library's sources in few translation units, with the standard headers precompiled: two thirds of
# the time that most sources take is reading the same headers again. Nothing of Weft is precompiled, since that changes. Other
# builds do without: there ccache takes from one preset what another compiled, which it cannot with precompiled headers; and a
# missing #include would not be noticed. Names in a library's anonymous namespaces have to differ: they meet in one unit.
set(WEFT_STANDARD_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstdio> <cstring>
  <exception> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span>
  <sstream> <stdexcept> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h>
  <nlohmann/json.hpp>)
set(WEFT_SOURCES_PER_UNIT 12)

# weft_instrumented(LIBRARY…): the above for libraries that have weft_flags and fmt; nothing where code is not instrumented.
function(weft_instrumented)
  if(TARGET weft_standard_headers)
    foreach(library ${ARGN})
      target_precompile_headers(${library} REUSE_FROM weft_standard_headers)
      set_target_properties(${library} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${WEFT_SOURCES_PER_UNIT})
    endforeach()
  endif()
endfunction()

if(WEFT_SANITIZE)
  # Precompiled headers need a target, and a target a source.
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cpp CONTENT "")
  add_library(weft_standard_headers OBJECT ${PROJECT_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(weft_standard_headers PRIVATE weft_flags fmt::fmt nlohmann_json::nlohmann_json)
  target_precompile_headers(weft_standard_headers PRIVATE ${WEFT_STANDARD_HEADERS})
endif()
