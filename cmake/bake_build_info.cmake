# Writes `output` from build_info.cpp.in. Run at build time (cmake -P), so that the commit is that of the tree being
# compiled and not of the last configure; the file is touched only when it changes.
#   -Dsource_dir= -Doutput= -Dversion= -Dcompiler=
set(commit unknown)
find_package(Git QUIET)
# Only a repository of our own counts: sources unpacked inside somebody else's repository have no commit.
if(GIT_FOUND AND EXISTS "${source_dir}/.git")
  execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12 --exclude=*
    WORKING_DIRECTORY ${source_dir} RESULT_VARIABLE failed OUTPUT_VARIABLE described
    ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT failed)
    set(commit ${described})
  endif()
endif()
configure_file(${CMAKE_CURRENT_LIST_DIR}/build_info.cpp.in ${output} @ONLY)
