// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>

// The signal of C libraries for changing the user of all threads, which neither they nor Go ever block. We never change ours.
enum { confine_signal = 33 };

// confine_prepare sets what threads keep that get the signal. It returns 0 or a negative error number.
int confine_prepare(uint32_t low, uint32_t high);
