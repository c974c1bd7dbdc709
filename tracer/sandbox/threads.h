// SPDX-License-Identifier: Apache-2.0
#include <stdint.h>

// C libraries use this signal to change the user of all threads; neither they nor Go ever block it.
// vramprof never changes its user.
enum { confine_signal = 33 };

// confine_prepare sets the capabilities that signaled threads keep. It returns 0 or a negative
// error number.
int confine_prepare(uint32_t low, uint32_t high);
