// SPDX-License-Identifier: Apache-2.0
// PyTorch asks for an algorithm and fails if there is none.
#include <stddef.h>

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *operation, void *a, void *b, void *c, void *d, void *preference, int most, void *results, int *found)
{
	(void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference, (void)most, (void)results;
	*found = 1;
	return 0;
}
