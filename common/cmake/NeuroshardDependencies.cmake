# Every third-party package, found once. All come from Debian (deploy/packages.txt); CUDA and NCCL are optional.
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
find_package(PkgConfig REQUIRED)
pkg_check_modules(libpqxx REQUIRED IMPORTED_TARGET libpqxx libpq)
find_package(OpenSSL REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(Torch CONFIG REQUIRED)
set(BLA_VENDOR Generic)  # for bench/; whichever is installed, which libtorch runs on too
find_package(BLAS REQUIRED)
find_package(hwy CONFIG REQUIRED)
find_package(Gloo CONFIG REQUIRED)
if(NEUROSHARD_BUILD_TESTS)
  find_package(GTest CONFIG REQUIRED)
  include(GoogleTest)
endif()
if(NEUROSHARD_BUILD_BENCH)
  find_package(benchmark CONFIG REQUIRED)
endif()

# Debian's python3 has Debian's grpcio, protobuf and NumPy (deploy/packages.txt); another one that comes first in PATH need not.
find_program(NEUROSHARD_PYTHON NAMES python3 HINTS /usr/bin NO_CACHE)

# CUDA code is compiled wherever nvcc is found: from Turing (T4) on to what nvcc knows, and as PTX for what comes later; the preset
# dev takes sm_80 and sm_90 alone, which are quicker to compile (tests/machine_code looks at those). The runtime is linked
# statically, and the driver, NCCL and NVML are looked for when a worker starts: one binary serves hosts with and without them.
# Sanitizer builds leave it out: the kernels' bodies run in kernels_gpu_op_test there, and the rest needs a GPU.
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
  if(NOT architectures AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
    set(architectures 75-real 80-real 90-real 100-real 120)
  elseif(NOT architectures)
    set(architectures 75-real 80-real 90)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  # CMake 3.25 does not know nvcc's option for C++20.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit REQUIRED)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  set(NEUROSHARD_WITH_CUDA ON)
  message(STATUS "CUDA: ${CUDAToolkit_VERSION} (${CMAKE_CUDA_COMPILER})")
  message(STATUS "NCCL: ${NCCL_INCLUDE_DIR}")
else()
  message(STATUS "CUDA: no nvcc, or a sanitizer; workers are built with the cpu backend only")
endif()
set(NEUROSHARD_WITH_NCCL OFF)
if(NEUROSHARD_WITH_CUDA AND NCCL_INCLUDE_DIR)
  set(NEUROSHARD_WITH_NCCL ON)
endif()
