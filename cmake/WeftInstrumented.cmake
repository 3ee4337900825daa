# Precompiled headers for instrumented builds: two thirds of the time that most sources take is reading the same standard headers
# again. Nothing of Weft is among them, since that changes. Other builds do without: there ccache takes from one preset what
# another compiled, which it cannot with precompiled headers; and a missing #include would not be noticed.
set(WEFT_STANDARD_HEADERS <algorithm> <array> <atomic> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstdio> <cstring>
  <exception> <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span>
  <sstream> <stdexcept> <string> <string_view> <thread> <unordered_map> <utility> <variant> <vector> <fmt/format.h>
  <nlohmann/json.hpp>)

# weft_precompiled(LIBRARY…): the headers above for libraries that have weft_flags and fmt.
function(weft_precompiled)
  if(TARGET weft_standard_headers)
    foreach(library ${ARGN})
      target_precompile_headers(${library} REUSE_FROM weft_standard_headers)
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
