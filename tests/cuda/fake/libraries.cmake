# Weft over a GPU in host memory: every module but those that need the CUDA runtime or nvcc, for which the fake stands in.
# Kernels are the same files, compiled by the C++ compiler with gpu/kernels/cuda/launch.cuh. For whoever includes this.
set(fake ${weft_SOURCE_DIR}/tests/cuda/fake)
set(kernels "")
if(WEFT_CUDA_TRAINING)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${weft_SOURCE_DIR}/kernels/cuda/*.cu)
  set_source_files_properties(${kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS -ffp-contract=off)
endif()
add_library(weft_fake_gpu STATIC ${fake}/fake_gpu.cpp ${fake}/fake_cuda.cpp ${fake}/fake_capture.cpp ${kernels})
get_property(modules GLOBAL PROPERTY WEFT_MODULES)
list(REMOVE_ITEM modules weft_kernels_cuda weft_runtime_cuda_linked)
foreach(module ${modules})
  target_sources(weft_fake_gpu PRIVATE $<TARGET_OBJECTS:${module}>)
endforeach()
target_include_directories(weft_fake_gpu BEFORE PRIVATE ${fake}/gpu)
target_include_directories(weft_fake_gpu PUBLIC ${weft_SOURCE_DIR}/include ${weft_BINARY_DIR}/include
  ${weft_SOURCE_DIR}/tests ${weft_SOURCE_DIR}/src ${weft_SOURCE_DIR})
target_link_libraries(weft_fake_gpu PUBLIC weft_flags weft_dependencies)
if(WEFT_WITH_NCCL)
  add_library(weft_fake_nccl STATIC ${fake}/fake_nccl.cpp ${fake}/fake_nccl_calls.cpp ${fake}/fake_nccl_group.cpp
    ${fake}/fake_nccl_life.cpp)
  target_link_libraries(weft_fake_nccl PUBLIC weft_fake_gpu)
endif()
