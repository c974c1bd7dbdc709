// SPDX-License-Identifier: Apache-2.0
// A library for ctypes_library.py: an image filter that needs scratch memory.
#include <stddef.h>

int cudaMalloc(void **, size_t);

int smooth(void *image, size_t bytes)
{
	void *scratch;
	int result = cudaMalloc(&scratch, bytes);
	(void)image; // kernels would run here
	return result;
}
