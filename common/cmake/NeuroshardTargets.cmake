# neuroshard_library / neuroshard_executable / neuroshard_test: every target of ours is made by one of these, so that the
# direction of dependencies (README of common/) is checked when CMake configures, not in review.

# Which layers a layer may depend on, besides itself.
set(NEUROSHARD_LAYER_proto "")
set(NEUROSHARD_LAYER_common proto)
set(NEUROSHARD_LAYER_kernels common)
set(NEUROSHARD_LAYER_worker proto common kernels)
set(NEUROSHARD_LAYER_server proto common)
set(NEUROSHARD_LAYER_client proto common)

# What a PURE target may link besides other PURE targets: values and formatting only, nothing that does I/O.
set(NEUROSHARD_PURE_EXTERNALS absl::flat_hash_map absl::status absl::statusor fmt::fmt)

# Tests and benchmarks may look at every layer (they start real processes and compare sides), nothing may depend on them.
set(NEUROSHARD_LAYER_tests proto common kernels worker server client)
set(NEUROSHARD_LAYER_bench proto common kernels worker server client tests)

# The layer is the top-level folder the calling CMakeLists.txt is in.
function(_neuroshard_layer out)
  file(RELATIVE_PATH path ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REGEX REPLACE "/.*" "" layer "${path}")
  set(${out} ${layer} PARENT_SCOPE)
endfunction()

function(_neuroshard_check_deps target layer pure)
  foreach(dep IN LISTS ARGN)
    if(NOT TARGET ${dep})
      message(FATAL_ERROR "${target}: dependency ${dep} is not a target (yet); dependencies are added before their users")
    endif()
    get_target_property(dep_layer ${dep} NEUROSHARD_LAYER)
    if(NOT dep_layer)
      if(pure AND NOT dep IN_LIST NEUROSHARD_PURE_EXTERNALS)
        message(FATAL_ERROR "${target} is PURE and may not depend on ${dep}")
      endif()
      continue()
    endif()
    if(NOT dep_layer STREQUAL layer AND NOT dep_layer IN_LIST NEUROSHARD_LAYER_${layer})
      message(FATAL_ERROR "${target} (layer ${layer}) may not depend on ${dep} (layer ${dep_layer})")
    endif()
    get_target_property(dep_pure ${dep} NEUROSHARD_PURE)
    if(pure AND NOT dep_pure)
      message(FATAL_ERROR "${target} is PURE and may not depend on ${dep}, which is not")
    endif()
  endforeach()
endfunction()

function(_neuroshard_compile_options target)
  # -Wno-restrict: g++ 12 reports overlaps inside std::string at -O3 that are not there (GCC bug 105651).
  set(werror $<BOOL:${NEUROSHARD_WERROR}>)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wconversion;-Wno-sign-conversion;-Wno-restrict;$<${werror}:-Werror>>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-O3;-Xcompiler=-Wall,-Wextra;$<${werror}:--Werror=all-warnings>>")
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# neuroshard_library(NAME [PURE] SRCS a.cc a.h ... [DEPS public...] [PRIVATE_DEPS ...])
#   PURE: no I/O, clock, threads or logging: links only other PURE targets.
function(neuroshard_library name)
  cmake_parse_arguments(ARG "PURE" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  _neuroshard_layer(layer)
  _neuroshard_check_deps(${name} ${layer} ${ARG_PURE} ${ARG_DEPS} ${ARG_PRIVATE_DEPS})
  set(compiled ${ARG_SRCS})
  list(FILTER compiled INCLUDE REGEX "\\.(cc|cu)$")
  if(compiled)
    add_library(${name} STATIC ${ARG_SRCS})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
    _neuroshard_compile_options(${name})
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE ${ARG_DEPS})
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
  endif()
  set_target_properties(${name} PROPERTIES NEUROSHARD_LAYER ${layer} NEUROSHARD_PURE ${ARG_PURE})
endfunction()

# neuroshard_executable(neuroshard_NAME OUTPUT binary-name SRCS main.cc DEPS ...): installed as the component NAME (deploy/CMakeLists.txt)
function(neuroshard_executable name)
  cmake_parse_arguments(ARG "" "OUTPUT" "SRCS;DEPS" ${ARGN})
  _neuroshard_layer(layer)
  _neuroshard_check_deps(${name} ${layer} FALSE ${ARG_DEPS})
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  _neuroshard_compile_options(${name})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${ARG_OUTPUT} RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(NOT layer STREQUAL bench)
    string(REPLACE "neuroshard_" "" component ${name})
    install(TARGETS ${name} RUNTIME DESTINATION bin COMPONENT ${component})
  endif()
endfunction()

# Whether a test has threads: of a library that is not PURE, or its own.
function(_neuroshard_has_threads out srcs)
  set(${out} FALSE PARENT_SCOPE)
  foreach(dep IN LISTS ARGN)
    get_target_property(layer ${dep} NEUROSHARD_LAYER)
    get_target_property(pure ${dep} NEUROSHARD_PURE)
    if(layer AND NOT pure)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endforeach()
  foreach(src IN LISTS srcs)
    file(STRINGS ${src} lines REGEX "#include <(thread|future)>")
    if(lines)
      set(${out} TRUE PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# neuroshard_test(NAME [SERIAL] SRCS a_test.cc ... DEPS ... [LABELS ...]): one binary a folder, one ctest entry a test case.
#   SERIAL: its tests start several processes each; ctest runs nothing beside them.
function(neuroshard_test name)
  if(NOT NEUROSHARD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "SERIAL" "" "SRCS;DEPS;LABELS" ${ARGN})
  _neuroshard_layer(layer)
  _neuroshard_check_deps(${name} ${layer} FALSE ${ARG_DEPS})
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
    _neuroshard_has_threads(threads "${ARG_SRCS}" ${ARG_DEPS})
    if(NOT threads)
      return()  # ThreadSanitizer has nothing to look at
    endif()
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock_main)
  _neuroshard_compile_options(${name})
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")  # gtest's and gmock's templates take a sanitizer twice as long at -O1
    target_compile_options(${name} PRIVATE -O0)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  target_compile_definitions(${name} PRIVATE NEUROSHARD_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    NEUROSHARD_BIN_DIR="${PROJECT_BINARY_DIR}/bin")
  set(properties RUN_SERIAL ${ARG_SERIAL})
  if(ARG_LABELS)  # an empty value would make the next word the label
    list(APPEND properties LABELS ${ARG_LABELS})
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 PROPERTIES ${properties})
endfunction()
