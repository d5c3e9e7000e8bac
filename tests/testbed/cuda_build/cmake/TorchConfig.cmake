# What torch's own TorchConfig.cmake leaves behind for a CUDA toolkit and TORCH_CUDA_ARCH_LIST. The language CUDA stays
# off, so that CMake lists the CUDA sources and compiles none.
set(CUDA_FOUND TRUE)
set(CUDA_VERSION "$ENV{STANDIN_CUDA}")
set(CUDA_TOOLKIT_ROOT_DIR "${CMAKE_CURRENT_LIST_DIR}")
set(CMAKE_CUDA_COMPILER_VERSION "$ENV{STANDIN_CUDA}.85")
set(Torch_VERSION 2.13.0)
foreach(architecture IN LISTS STANDIN_ARCHITECTURES)
  string(REPLACE "." "" architecture "${architecture}")
  string(APPEND CMAKE_CUDA_FLAGS " -gencode arch=compute_${architecture},code=sm_${architecture}")
endforeach()
foreach(library torch CUDA::cudart CUDA::cuda_driver)
  add_library(${library} INTERFACE IMPORTED)
endforeach()
