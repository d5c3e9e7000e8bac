# The extension vllm_volta._C, for the CMakeLists.txt of the patched vLLM and the one beside this file alike.
#
# Its kernels are one file of device code, which is put into it as it is. It is made here for compute capability 7.0, or
# it is a ready one, for a GPU that nvcc of this machine has no code for or for one that is not a V100:
# -DVLLM_VOLTA_DEVICE_CODE=FILE, or the environment variable of that name; a fat binary, a cubin or PTX.

set(VLLM_VOLTA_DEVICE_CODE "$ENV{VLLM_VOLTA_DEVICE_CODE}"
  CACHE FILEPATH "Ready device code for vllm_volta; empty: made by nvcc for compute capability 7.0")

# Set `OUT_SOURCES` to the sources of the extension. `NVCC` makes the device code, if it has to be made.
function(vllm_volta_sources OUT_SOURCES NVCC)
  set(_CSRC "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/csrc")
  file(GLOB _SOURCES CONFIGURE_DEPENDS "${_CSRC}/*.cpp")
  if(VLLM_VOLTA_DEVICE_CODE)
    get_filename_component(_CODE "${VLLM_VOLTA_DEVICE_CODE}" ABSOLUTE)
    if(NOT EXISTS "${_CODE}" OR IS_DIRECTORY "${_CODE}")
      message(FATAL_ERROR "VLLM_VOLTA_DEVICE_CODE is ${_CODE}, which is no file.")
    endif()
    message(STATUS "vllm_volta: device code is ${_CODE}")
  elseif(NOT NVCC)
    message(FATAL_ERROR "vllm_volta needs nvcc 12.5 to 12.9, or VLLM_VOLTA_DEVICE_CODE=FILE.")
  else()
    set(_CODE "${CMAKE_CURRENT_BINARY_DIR}/vllm_volta/device_code.fatbin")
    set(_HOST "${CMAKE_CXX_COMPILER}")
    if(CMAKE_CUDA_HOST_COMPILER)
      set(_HOST "${CMAKE_CUDA_HOST_COMPILER}")
    endif()
    file(GLOB _KERNELS CONFIGURE_DEPENDS "${_CSRC}/*.cuh" "${_CSRC}/*.h")
    file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/vllm_volta")
    add_custom_command(
      OUTPUT "${_CODE}"
      COMMAND "${NVCC}" -fatbin -gencode arch=compute_70,code=sm_70 -std=c++17 -ccbin "${_HOST}"
        -o "${_CODE}" "${_CSRC}/device_code.cu"
      DEPENDS "${_CSRC}/device_code.cu" ${_KERNELS}
      COMMENT "Building device code of vllm_volta for compute capability 7.0"
      VERBATIM)
    # As a source it is made before the extension is.
    list(APPEND _SOURCES "${_CODE}")
  endif()
  set_source_files_properties("${_CSRC}/device_code.cpp" PROPERTIES
    OBJECT_DEPENDS "${_CODE}"
    COMPILE_DEFINITIONS "VLLM_VOLTA_DEVICE_CODE=\"${_CODE}\"")
  set(${OUT_SOURCES} "${_SOURCES}" PARENT_SCOPE)
endfunction()

# What the extension is compiled and linked with beside torch's and CUDA's headers and libraries.
function(vllm_volta_settings TARGET)
  # The interface of torch 2.11, which later releases keep.
  target_compile_definitions(${TARGET} PRIVATE USE_CUDA TORCH_TARGET_VERSION=0x020B000000000000ULL)
  # Of torch's libraries those that are used; none of them is libcuda, which comes with the driver.
  target_link_options(${TARGET} PRIVATE LINKER:--as-needed)
  # Where LDFLAGS asks for a static libstdc++, mixing its symbols with those of torch's ends the process when an error is
  # to be told (seen on an H200).
  target_link_options(${TARGET} PRIVATE LINKER:--exclude-libs,ALL)
endfunction()
