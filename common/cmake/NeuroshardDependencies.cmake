# Every third-party package, found once. All come from Debian (deploy/packages.txt); CUDA and NCCL are optional, and a client alone
# (NEUROSHARD_CLIENT_ONLY) takes the first half.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Without this, ccache leaves files with precompiled headers to the compiler.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)  # the module, and before gRPC's config, which would define the targets differently
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
if(NEUROSHARD_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  include(GoogleTest)
endif()

# Debian's python3 has Debian's grpcio, protobuf and NumPy (deploy/packages.txt); another one that comes first in PATH need not.
find_program(NEUROSHARD_PYTHON NAMES python3 HINTS /usr/bin NO_CACHE)

if(NEUROSHARD_CLIENT_ONLY)
  return()
endif()

find_package(PkgConfig REQUIRED)
pkg_check_modules(libpqxx REQUIRED IMPORTED_TARGET libpqxx libpq)
find_package(Torch CONFIG REQUIRED)
set(BLA_VENDOR Generic)  # for bench/; whichever is installed, which libtorch runs on too
find_package(BLAS REQUIRED)
find_package(hwy CONFIG REQUIRED)
if(NEUROSHARD_BUILD_BENCH)
  find_package(benchmark CONFIG REQUIRED)
endif()

# CUDA code is compiled wherever nvcc is found; the preset dev takes sm_80 and sm_90 alone, which are quicker to compile
# (tests/machine_code looks at those). NEUROSHARD_CUDA_12: for bundles, whose hosts may have an older driver than this one. The runtime is linked
# statically, and the driver, NCCL and NVML are looked for when a worker starts: one binary serves hosts with and without them.
# Sanitizer builds leave it out: the kernels' bodies run in kernels_gpu_op_test there, and the rest needs a GPU.
include(NeuroshardCuda)
option(NEUROSHARD_CUDA_12 "Prefer a CUDA 12 toolkit below /usr/local, if there is one, to a newer one" OFF)
if(NEUROSHARD_CUDA_12 AND NOT CMAKE_CUDA_COMPILER)
  neuroshard_cuda_12_compiler(nvcc /usr/local)
  if(nvcc)
    set(CMAKE_CUDA_COMPILER ${nvcc})
  endif()
endif()
option(NEUROSHARD_REQUIRE_CUDA "Fail where there is no nvcc, instead of building without GPU code" OFF)
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER CACHE)  # a toolkit may have been installed since this folder was configured
endif()
include(CheckLanguage)
check_language(CUDA)
set(NEUROSHARD_WITH_CUDA OFF)
if(CMAKE_CUDA_COMPILER AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
  set(architectures ${CMAKE_CUDA_ARCHITECTURES})
  set(CMAKE_CUDA_ARCHITECTURES 80)  # of the compiler's own test
  if(CCACHE_PROGRAM)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  endif()
  enable_language(CUDA)
  if(NOT architectures)
    neuroshard_cuda_architectures(architectures ${CMAKE_CUDA_COMPILER_VERSION})
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  # CMake 3.25 does not know nvcc's option for C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  neuroshard_find_cuda_toolkit()
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  set(NEUROSHARD_WITH_CUDA ON)
  message(STATUS "CUDA: ${CUDAToolkit_VERSION} (${CMAKE_CUDA_COMPILER})")
  message(STATUS "NCCL: ${NCCL_INCLUDE_DIR}")
elseif(NEUROSHARD_REQUIRE_CUDA)
  message(FATAL_ERROR "NEUROSHARD_REQUIRE_CUDA: no working nvcc on the PATH and none by CMAKE_CUDA_COMPILER, or a sanitizer is on")
else()
  message(STATUS "CUDA: no nvcc, or a sanitizer; workers are built with the cpu backend only")
endif()
# What a bundle of this build says that GPUs need.
set(bundle_needs "nothing: this build has no GPU code")
if(NEUROSHARD_WITH_CUDA)
  neuroshard_cuda_driver(driver ${CUDAToolkit_VERSION})
  set(bundle_needs "a driver ${driver}: built with CUDA ${CUDAToolkit_VERSION}")
endif()
file(WRITE ${PROJECT_BINARY_DIR}/gpu_needs.txt "${bundle_needs}\n")
set(NEUROSHARD_WITH_NCCL OFF)
if(NEUROSHARD_WITH_CUDA AND NCCL_INCLUDE_DIR)
  set(NEUROSHARD_WITH_NCCL ON)
endif()
