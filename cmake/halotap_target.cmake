# What every target of the project has in common: warnings and the chosen sanitizer.

function(halotap_target_options target)
  # nvcc hands the host compiler code of its own that is not pedantic.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;$<$<BOOL:${HALOTAP_WERROR}>:-Werror>>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;$<$<BOOL:${HALOTAP_WERROR}>:-Werror=all-warnings>>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # It sees overlapping copies in "text" + std::string where there are none (GCC bug 105651).
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
  endif()
  if(HALOTAP_SANITIZER STREQUAL "address")
    set(flags -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer)
  elseif(HALOTAP_SANITIZER STREQUAL "thread")
    set(flags -fsanitize=thread)
  elseif(HALOTAP_SANITIZER STREQUAL "realtime")
    set(flags -fsanitize=realtime)
  elseif(HALOTAP_SANITIZER)
    message(FATAL_ERROR "HALOTAP_SANITIZER: expected address, thread or realtime, got '${HALOTAP_SANITIZER}'")
  endif()
  if(HALOTAP_FUZZ)
    list(APPEND flags -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${flags}>)
  target_link_options(${target} PRIVATE ${flags})
endfunction()

# halotap_add_program_with_card(<name> <library> <sources...>): a program with passes on the host in the place of a card,
# for tests of what it does when a card fails.
function(halotap_add_program_with_card name library)
  add_executable(${name} ${ARGN}
    ${PROJECT_SOURCE_DIR}/tests/kernels/cuda/host_pass_device.cpp
    ${PROJECT_SOURCE_DIR}/tests/pipeline/host_card.cpp
  )
  target_link_libraries(${name} PRIVATE ${library})
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/kernels/src ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/tests/kernels)
  halotap_target_options(${name})
endfunction()
