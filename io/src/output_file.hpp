// The file behind every file sink: whole under its name, or not there.
#pragma once

#include <string>

#include "file.hpp"

namespace halotap::io {

// Opens a file for writing under a temporary name beside its place; finish moves it there. Until then a file of that
// name keeps its content, and destruction without finish leaves no trace. A path that exists and is no regular file (a
// pipe, /dev/full) and "-" (standard output) are written straight through: nothing can be taken back there.
//
// Symbolic links are followed: the file they lead to is replaced, not the link; one that leads nowhere is refused. The
// new file gets the mode of any new file (umask). Nothing is synced: a power cut is out of scope. construct -> write ->
// finish. One thread. [control]
class OutputFile {
 public:
  // Throws DataError naming `path` when it is a folder or cannot be written.
  explicit OutputFile(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // What is being written; its name is the path given, its descriptor can be read too unless it is written
  // straight through.
  File& file() { return file_; }

  // Where a library that opens files itself may write instead; empty when written straight through.
  const std::string& temporary_path() const { return temporary_path_; }
  // The folder that file is in, for File::temporary; empty when written straight through.
  const std::string& folder() const { return folder_; }

  // Closes the file and gives it its name. Throws DataError; then nothing is left.
  void finish();

 private:
  std::string final_path_;
  std::string temporary_path_;  // empty when written straight through, and after finish
  std::string folder_;
  File file_;
};

}  // namespace halotap::io
