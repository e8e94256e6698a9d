# Boost::headers: Boost's own package file tells where they are; without one (headers alone) they are looked for.
# CMake's FindBoost, which did both, is on its way out (policy CMP0167).
set(HALOTAP_LEAST_BOOST 1.74)

find_package(Boost ${HALOTAP_LEAST_BOOST} CONFIG QUIET)
if(NOT TARGET Boost::headers)
  find_path(Boost_INCLUDE_DIR boost/version.hpp HINTS ${BOOST_ROOT} $ENV{BOOST_ROOT} ${Boost_ROOT} PATH_SUFFIXES include
    DOC "Folder that holds Boost's headers, as boost/version.hpp")
  if(NOT Boost_INCLUDE_DIR)
    message(FATAL_ERROR "Boost ${HALOTAP_LEAST_BOOST} or later: no boost/version.hpp found (libboost-dev); "
      "BOOST_ROOT or Boost_INCLUDE_DIR says where it is")
  endif()
  # "1_74"
  file(STRINGS ${Boost_INCLUDE_DIR}/boost/version.hpp version REGEX "define BOOST_LIB_VERSION ")
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" version "${version}")
  string(REPLACE "_" "." version "${version}")
  if(version VERSION_LESS HALOTAP_LEAST_BOOST)
    message(FATAL_ERROR "Boost: expected ${HALOTAP_LEAST_BOOST} or later, got ${version} in ${Boost_INCLUDE_DIR}")
  endif()
  add_library(Boost::headers INTERFACE IMPORTED)
  set_target_properties(Boost::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES ${Boost_INCLUDE_DIR})
endif()
