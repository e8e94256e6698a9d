// How much memory there is.
#pragma once

namespace halotap::pipeline {

// Bytes of this machine's memory; infinite where the system does not say. To refuse what can never be held: a system
// that promises more memory than it has would end the program only when it is used. [any thread]
double memory_bytes();

}  // namespace halotap::pipeline
