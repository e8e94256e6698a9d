# HALOTAP_CUDA: what the user asked for, what is there, and HALOTAP_CUDA_FOUND in words for the summary.
# HALOTAP_HAVE_CUDA is true when the CUDA backend is built; then the language is on and the architectures are chosen.

# C++20 in device code came with 12.0.
set(HALOTAP_LEAST_CUDA 12.0)
set(HALOTAP_HAVE_CUDA FALSE)

# The architectures to build for, as CMake spells them:
#   auto  the first card of this machine, or 90a (the H100 and H200) where there is none that is new enough
#   all   every one that the kernels know and the toolkit can build, and PTX of the newest for cards to come
#   else  taken as it is
# Sets HALOTAP_CUDA_TARGETS.
function(halotap_choose_cuda_architectures)
  if(HALOTAP_CUDA_ARCHITECTURES STREQUAL "all")
    set(targets 80-real 86-real 89-real 90a-real)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.8)
      list(APPEND targets 100-real 120)
    else()
      list(APPEND targets 90-virtual)
    endif()
  elseif(HALOTAP_CUDA_ARCHITECTURES STREQUAL "auto")
    set(targets 90a-real)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      RESULT_VARIABLE failed OUTPUT_VARIABLE cards ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(NOT failed AND cards MATCHES "^([0-9]+)\\.([0-9])")
      set(card "${CMAKE_MATCH_1}${CMAKE_MATCH_2}")
      # Instructions of one generation alone, such as wgmma, are behind the letter.
      if(card EQUAL 90)
        set(card 90a)
      endif()
      if(CMAKE_MATCH_1 GREATER_EQUAL 8)
        set(targets ${card}-real)
      endif()
    endif()
  else()
    set(targets ${HALOTAP_CUDA_ARCHITECTURES})
  endif()
  set(HALOTAP_CUDA_TARGETS ${targets} PARENT_SCOPE)
endfunction()

if(HALOTAP_CUDA STREQUAL "OFF")
  set(HALOTAP_CUDA_FOUND "not looked for (HALOTAP_CUDA=OFF)")
elseif(HALOTAP_CUDA STREQUAL "AUTO" OR HALOTAP_CUDA STREQUAL "ON")
  include(CheckLanguage)
  # Where the toolkit puts itself, without being on the PATH.
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(HALOTAP_NVCC nvcc PATHS ${CUDAToolkit_ROOT} ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(HALOTAP_NVCC)
    if(HALOTAP_NVCC)
      set(CMAKE_CUDA_COMPILER ${HALOTAP_NVCC})
    endif()
  endif()
  # Until they are chosen: 80 is what every toolkit here can build.
  set(CMAKE_CUDA_ARCHITECTURES 80)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS HALOTAP_LEAST_CUDA)
      set(HALOTAP_CUDA_FOUND "${CMAKE_CUDA_COMPILER_VERSION} found, too old (${HALOTAP_LEAST_CUDA} or later is used)")
    else()
      find_package(CUDAToolkit REQUIRED)
      # CMake 3.25 does not know yet that nvcc has C++20.
      if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
        set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      endif()
      halotap_choose_cuda_architectures()
      set(HALOTAP_HAVE_CUDA TRUE)
      list(JOIN HALOTAP_CUDA_TARGETS " " targets)
      set(HALOTAP_CUDA_FOUND "${CMAKE_CUDA_COMPILER_VERSION} for ${targets}")
    endif()
  else()
    set(HALOTAP_CUDA_FOUND "none that works here found")
  endif()
  if(HALOTAP_CUDA STREQUAL "ON" AND NOT HALOTAP_HAVE_CUDA)
    message(FATAL_ERROR "HALOTAP_CUDA=ON needs a CUDA toolkit of ${HALOTAP_LEAST_CUDA} or later and a C++ compiler that "
      "it works with, CUDA toolkit: ${HALOTAP_CUDA_FOUND}; set CUDACXX to its nvcc, or say AUTO or OFF")
  endif()
else()
  message(FATAL_ERROR "HALOTAP_CUDA: expected AUTO, ON or OFF, got '${HALOTAP_CUDA}'")
endif()
