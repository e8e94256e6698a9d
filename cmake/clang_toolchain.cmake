# For the sanitizer and fuzzing presets: the newest clang from 20 on, the first with RealtimeSanitizer. One compiler for
# all of them keeps their findings comparable. CXX in the environment or -DCMAKE_CXX_COMPILER chooses another.
if(NOT DEFINED ENV{CXX} AND NOT CMAKE_CXX_COMPILER)
  find_program(HALOTAP_CLANG NAMES clang++-22 clang++-21 clang++-20 clang++)
  if(NOT HALOTAP_CLANG)
    message(FATAL_ERROR "this preset needs clang 20 or later; 'scripts/install-packages.sh sanitizers' installs it")
  endif()
  set(CMAKE_CXX_COMPILER ${HALOTAP_CLANG})
endif()
