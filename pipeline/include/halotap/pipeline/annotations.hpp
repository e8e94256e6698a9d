// HALOTAP_NONBLOCKING, for whoever may not include the kernels.
#pragma once

#include "halotap/kernels/annotations.hpp"
