# Which CUDA toolkit compiles the kernels, and for what. Functions alone: cuda_test.cmake calls them without a project.

# neuroshard_find_cuda_toolkit(): find_package(CUDAToolkit REQUIRED). The module of CMake 3.25, which Debian 12 has, sets a property of
# CUDA::nvToolsExt, a library that CUDA 13 no longer has, and configuring fails there; so there is a target of that name, which nothing uses.
macro(neuroshard_find_cuda_toolkit)
  if(NOT TARGET CUDA::nvToolsExt)
    add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
  endif()
  find_package(CUDAToolkit REQUIRED)
endmacro()

# neuroshard_cuda_12_compiler(VARIABLE FOLDER...): the nvcc of the newest toolkit 12.x that is installed as FOLDER/cuda-12.N; else empty.
function(neuroshard_cuda_12_compiler variable)
  set(found)
  foreach(folder IN LISTS ARGN)
    file(GLOB toolkits ${folder}/cuda-12.*/bin/nvcc)
    list(APPEND found ${toolkits})
  endforeach()
  list(SORT found COMPARE NATURAL ORDER DESCENDING)
  set(newest "")
  if(found)
    list(GET found 0 newest)
  endif()
  set(${variable} "${newest}" PARENT_SCOPE)
endfunction()

# neuroshard_cuda_architectures(VARIABLE VERSION): from Turing (T4) on to what nvcc of that version knows, and the last as PTX for what comes
# later. Those between run the code of the first of their generation (86 and 89 that of 80).
function(neuroshard_cuda_architectures variable version)
  if(version VERSION_GREATER_EQUAL 12.8)
    set(${variable} 75-real 80-real 90-real 100-real 120 PARENT_SCOPE)
  elseif(version VERSION_GREATER_EQUAL 12.0)
    set(${variable} 75-real 80-real 90 PARENT_SCOPE)
  else()
    message(FATAL_ERROR "CUDA ${version} has no C++20: 12.0 or newer is needed")
  endif()
endfunction()

# neuroshard_cuda_driver(VARIABLE VERSION): the first driver that runs what a toolkit compiled, by NVIDIA's minor version compatibility.
function(neuroshard_cuda_driver variable version)
  if(version VERSION_GREATER_EQUAL 14)
    message(WARNING "CUDA ${version}: which driver it needs is not known here (common/cmake/NeuroshardCuda.cmake)")
    set(${variable} "for CUDA ${version}" PARENT_SCOPE)
  elseif(version VERSION_GREATER_EQUAL 13)
    set(${variable} "580 or newer" PARENT_SCOPE)
  else()
    set(${variable} "525 or newer" PARENT_SCOPE)
  endif()
endfunction()
